/* The optional accelerator. `scan` finds the plain samples of an archive in one pass over bytes in memory, or over the
   headers in a file, and returns their names and places; `gather` reads ranges of files.

   `scan` does what `TarReader.raw` with `EntryGroups.read` do, for regular files of USTAR, GNU and PAX
   headers. It stops before anything else (another type, a number or record of another form, a checksum that is not the
   unsigned sum, an entry without a key, a repeated name, a name that may leave its directory), and Python reads on from
   there. It never decides that something is wrong, and reads nothing outside of its window.
   Sources: see tarkit/tar/reader.py. */

#define _FILE_OFFSET_BITS 64
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 512, AROUND = 4096, FIELD = 4096, NAME = 1024, GATHERED = 1 << 26,
       ENTRIES = 1025, /* 1024 of complete samples, and one more */
       NAMES = 1 << 15,
       COMPARED = 64 /* entries of a sample whose names do not ascend */ };

typedef unsigned char byte;
typedef long long number;

typedef struct {
    const byte *bytes;
    Py_ssize_t length;
} Span;

typedef struct {
    Span held;            /* bytes of the archive, */
    number base;          /* from this offset on */
    int fd;               /* the file in which to read others; -1 for none */
    number offset;        /* of the archive in the file */
    byte around[AROUND];  /* what was read there last */
} Window;

typedef struct {
    number data, size, stop; /* offsets in the archive */
} Entry;

typedef struct {
    number end, stop;   /* after its last entry: the number of an entry, and the offset */
    number field, size; /* the content of the field: its offset from `base`, -1 if there is none, and its size */
} Sample;

/* Return the `size` bytes at an offset, which stay there until the next call; NULL if they are neither held nor in the
   file. After a signal an exception may be set. */
static const byte *bytes_at(Window *window, number at, number size)
{
    if (at < window->base || size > window->base + window->held.length - at) {
        Py_ssize_t got;
        if (window->fd < 0 || size > AROUND || PyErr_CheckSignals())
            return NULL;
        Py_BEGIN_ALLOW_THREADS
        got = pread(window->fd, window->around, AROUND, (off_t)(window->offset + at));
        Py_END_ALLOW_THREADS
        window->held.bytes = window->around;
        window->held.length = got > 0 ? got : 0;
        window->base = at;
        if (got < size)
            return NULL;
    }
    return window->held.bytes + (at - window->base);
}

/* Return the octal number in a field of `width` bytes that has digits up to its last byte, a NUL or a space; else -1. */
static number octal(const byte *field, int width)
{
    number value = 0;
    for (int at = 0; at < width - 1; at++) {
        if (field[at] < '0' || field[at] > '7')
            return -1;
        value = value * 8 + (field[at] - '0');
    }
    return field[width - 1] == 0 || field[width - 1] == ' ' ? value : -1;
}

/* Return whether a header has the magic, and its checksum is six octal digits, NUL or space, space, and the sum of its
   bytes. */
static int checksum_ok(const byte *header)
{
    int sum = 8 * ' ';
    for (int at = 0; at < BLOCK; at++)
        sum += header[at];
    for (int at = 148; at < 156; at++)
        sum -= header[at];
    return header[155] == ' ' && octal(header + 148, 7) == sum && !memcmp(header + 257, "ustar", 5);
}

static int is_word(Span keyword, const char *word)
{
    return keyword.length == (number)strlen(word) && !memcmp(keyword.bytes, word, (size_t)keyword.length);
}

/* Find the `path` in the records of an `x` header. Return 0 if the records say more about the entry, or are malformed. */
static int find_path(Span records, Span *path)
{
    for (number at = 0, end; at < records.length; at = end + 1) {
        number size = 0, begin = at;
        while (at < records.length && records.bytes[at] >= '0' && records.bytes[at] <= '9' && at - begin < 8)
            size = size * 10 + (records.bytes[at++] - '0');
        end = begin + size - 1; /* of the value; a newline follows */
        if (at == begin || at == records.length || records.bytes[at++] != ' ' || end <= at || end >= records.length ||
            records.bytes[end] != '\n')
            return 0;
        const byte *keyword = records.bytes + at, *equals = memchr(keyword, '=', (size_t)(end - at));
        Span word = {keyword, equals ? equals - keyword : 0};
        if (word.length == 0 || is_word(word, "size") || is_word(word, "linkpath") ||
            (word.length > 11 && !memcmp(keyword, "GNU.sparse.", 11)))
            return 0;
        if (is_word(word, "path")) {
            path->bytes = equals + 1;
            path->length = records.bytes + end - path->bytes;
        }
    }
    return 1;
}

/* Append up to the first NUL of a field to a name of `length` bytes. Return the new length, -1 if that is too long. */
static number add_name(byte *name, number length, const byte *field, number width)
{
    const byte *nul = memchr(field, 0, (size_t)width);
    number more = nul ? nul - field : width;
    if (length + more >= NAME)
        return -1;
    memcpy(name + length, field, (size_t)more);
    return length + more;
}

/* Write the name in a header and a NUL, and return their length; 0 if the name is not plain. */
static number write_name(byte *name, const byte *header)
{
    number before = 0, length;
    if (header[345] && !memcmp(header + 257, "ustar", 6)) {
        if (!memcmp(header + 508, "tar", 4))
            return 0; /* star's prefix is shorter */
        before = add_name(name, 0, header + 345, 155);
        name[before++] = '/';
    }
    length = add_name(name, before, header, 100);
    name[length] = 0;
    return length > before ? length + 1 : 0;
}

/* Read the entry at `at`, and write its name. Return the length of that with a NUL, 0 if it is not a regular file, its
   headers are not in the window, or it ends after the archive, whose length is `whole`. */
static number read_entry(Window *window, number at, number whole, Entry *entry, byte *name)
{
    number length = 0;
    const byte *header = bytes_at(window, at, BLOCK);
    if (header == NULL || !checksum_ok(header))
        return 0;
    if (header[156] == 'x' || header[156] == 'L') { /* what it says, and the header after it, are in the window as well */
        Span said = {NULL, 0}, records = {NULL, octal(header + 124, 12)};
        number next = BLOCK + (records.length + BLOCK - 1) / BLOCK * BLOCK;
        if (records.length < 0 || (header = bytes_at(window, at, next + BLOCK)) == NULL)
            return 0;
        records.bytes = header + BLOCK;
        if (header[156] == 'L')
            said = records;
        else if (!find_path(records, &said) || (said.length && memchr(said.bytes, 0, (size_t)said.length)))
            return 0;
        if (said.length && (length = add_name(name, 0, said.bytes, said.length)) < 0)
            return 0;
        if (length)
            name[length++] = 0;
        at += next;
        header += next;
        if (!checksum_ok(header))
            return 0;
    }
    entry->data = at + BLOCK;
    entry->size = octal(header + 124, 12);
    entry->stop = entry->data + (entry->size + BLOCK - 1) / BLOCK * BLOCK;
    if (header[156] != '0' || entry->size < 0 || entry->stop > whole)
        return 0;
    return length ? length : write_name(name, header);
}

/* Return the length of the key in a name; 0 if it has none, or may leave its directory. */
static number key_of(const byte *name, number length)
{
    number slash = length;
    while (slash > 0 && name[slash - 1] != '/')
        slash--;
    const byte *dot = memchr(name + slash, '.', (size_t)(length - slash));
    for (number at = 1; at < slash; at++)
        if (name[at] == '.' && name[at - 1] == '.')
            return 0;
    return dot == NULL || dot == name + slash || name[0] == '/' ? 0 : dot - name;
}

/* Return whether a text of `length` bytes is the name of a field, as it is spelled. */
static int is_field(const byte *text, number length, Span field)
{
    return length == field.length && !memcmp(text, field.bytes, (size_t)length);
}

/* Formats with `#` would do this too, but compiled with headers of Python 3.13 they are errors on 3.12 and 3.11. */
static PyObject *bytes_of(const void *from, Py_ssize_t length)
{
    return PyBytes_FromStringAndSize(from, length);
}

static PyObject *scan(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer view, wanted;
    Window window;
    Entry entries[ENTRIES];
    Sample samples[ENTRIES];
    byte names[NAMES], keys[NAMES], *name = names, *key = keys;
    const byte *name_of[ENTRIES];
    Span field = {NULL, 0};
    number base, at, whole, least, most, start, begin, key_length = 0;
    Py_ssize_t first = 0, count = 0, complete = 0; /* the first entry of the current sample; complete samples, entries */
    int ascending = 1; /* whether the names of the current sample ascend: such names differ */
    if (!PyArg_ParseTuple(arguments, "y*LiLLLz*LL", &view, &base, &window.fd, &window.offset, &at, &whole, &wanted, &least,
                          &most))
        return NULL;
    field.bytes = wanted.buf;
    field.length = wanted.len;
    window.held.bytes = view.buf;
    window.held.length = view.len;
    window.base = base;
    start = begin = at;
    for (Py_ssize_t each = 0; each < ENTRIES && name - names < NAMES - NAME && at >= 0; each++) {
        Entry *entry = entries + each;
        name_of[each] = name;
        number length = read_entry(&window, at, whole, entry, name), own = key_of(name, length);
        if (own == 0)
            break;
        if (own != key_length || memcmp(name, name_of[first], (size_t)own)) {
            if (each > 0) { /* the sample before it is complete */
                if (field.bytes && samples[count].field < 0)
                    break;
                samples[count].end = complete = each;
                samples[count++].stop = at;
                memcpy(key, name_of[first], (size_t)key_length);
                key += key_length;
                *key++ = 0;
                if (at - begin < least || at - start > most)
                    break;
            }
            samples[count].field = -1;
            first = each;
            begin = at;
            key_length = own;
        }
        ascending = each == first || (ascending && strcmp((const char *)name, (const char *)name_of[each - 1]) > 0);
        for (Py_ssize_t other = ascending ? each : first; other < each; other++)
            if (!strcmp((const char *)name, (const char *)name_of[other]))
                own = 0;
        if (own == 0 || (!ascending && each - first >= COMPARED))
            break;
        if (field.bytes && samples[count].field < 0 && is_field(name + own + 1, length - own - 2, field)) {
            if (window.fd >= 0 && entry->size > FIELD)
                break; /* it is read besides: too long for that */
            samples[count].field = entry->data - base;
            samples[count].size = entry->size;
        }
        name += length;
        at = entry->stop;
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&wanted);
    if (PyErr_Occurred())
        return NULL;
    if (count == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(NNNN)", bytes_of(keys, key - keys - 1), bytes_of(names, name_of[complete] - names - 1),
                         bytes_of(samples, count * (Py_ssize_t)sizeof(Sample)),
                         bytes_of(entries, complete * (Py_ssize_t)sizeof(Entry)));
}

static PyObject *gather(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer views[3];
    Py_ssize_t total, done = 0, at = 0;
    if (!PyArg_ParseTuple(arguments, "y*y*y*n", views, views + 1, views + 2, &total))
        return NULL;
    const int64_t *fds = views[0].buf, *positions = views[1].buf, *sizes = views[2].buf;
    const Py_ssize_t count = views[0].len / 8;
    const int possible = views[1].len == views[0].len && views[2].len == views[0].len && total >= 0 && total <= GATHERED;
    PyObject *found = possible ? PyBytes_FromStringAndSize(NULL, total) : Py_NewRef(Py_None);
    if (possible && found != NULL) {
        char *into = PyBytes_AsString(found);
        Py_BEGIN_ALLOW_THREADS
        for (; at < count && sizes[at] >= 0 && sizes[at] <= total - done; done += sizes[at++])
            if (pread((int)fds[at], into + done, (size_t)sizes[at], (off_t)positions[at]) != sizes[at])
                break;
        Py_END_ALLOW_THREADS
        if (at < count || done < total) {
            Py_DECREF(found);
            found = Py_NewRef(Py_None);
        }
    }
    for (int each = 0; each < 3; each++)
        PyBuffer_Release(views + each);
    return found;
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS,
     "scan(data, base, fd, offset, at, whole, field, least, most)\n--\n\n"
     "Return the plain samples that follow each other from `at` on; see tarkit/tar/fast.py."},
    {"gather", gather, METH_VARARGS,
     "gather(fds, positions, sizes)\n--\n\n"
     "Return ranges of files, one after the other; see tarkit/tar/fast.py."},
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot slots[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* no state, and nothing shared but bytes that are read */
#endif
    {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_fast", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void) { return PyModuleDef_Init(&definition); }
