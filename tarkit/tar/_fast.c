/* The optional accelerator: the plain samples of an archive, found in one pass over the bytes that are in memory, or over
   the headers of a file; and `gather`, which reads ranges of files.

   `samples`, `run` and `run_of_file` do what `TarReader.raw` with `EntryGroups.read` or `find_run` do, for regular files of
   USTAR, GNU and PAX headers. They stop before anything else (another type, a number or record of another form, a
   checksum that is not the unsigned sum, an entry without a key, a repeated name), and Python reads on from there. They
   never decide that something is wrong.

   Nothing outside of a window is read, and no memory is allocated but for the result.
   Sources: see tarkit/tar/reader.py. */

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#define _FILE_OFFSET_BITS 64
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 512, LONGEST_NAME = 1024, MOST_ENTRIES = 64, MOST_SAMPLES = 64, LONGEST_RUN = 1024, AROUND = 4096,
       MOST_RANGES = 256, MOST_GATHERED = 1 << 26 };

typedef unsigned char byte;

typedef struct {
    const byte *bytes;
    long long length;
} Span;

typedef struct {
    Span held;            /* bytes of the archive, */
    long long base;       /* from this offset on */
    int fd;               /* the file in which to read others; -1 for none */
    long long offset;     /* of the archive in the file */
    byte around[AROUND];  /* what was read there last */
} Window;

typedef struct {
    long long start, data, size, stop; /* offsets in the archive */
    long long length, slash, dot;      /* of the name: its length, the end of its directory, its first dot after that */
    byte name[LONGEST_NAME];         /* the last member: see `copy` */
} Entry;

typedef struct {
    Py_buffer view;                  /* the caller's bytes, if there are any */
    Window window;
    long long whole;                 /* the length of the archive */
    Span field;                      /* the one whose contents are returned, if any */
    int count;                       /* entries of the current sample; 0 before the first, -1 if there is none */
    Entry entries[MOST_ENTRIES + 1]; /* they, and the first entry of the next sample */
} Archive;

/* Return the `size` bytes at an offset, which stay there until the next call; NULL if they are neither held nor in the
   file. After a signal an exception may be set. */
static const byte *bytes_at(Window *window, long long at, long long size)
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
static long long number(const byte *field, int width)
{
    long long value = 0;
    if (field[width - 1] != 0 && field[width - 1] != ' ')
        return -1;
    for (int at = 0; at < width - 1; at++) {
        if (field[at] < '0' || field[at] > '7')
            return -1;
        value = value * 8 + (field[at] - '0');
    }
    return value;
}

/* Return whether the checksum of a header is six octal digits, NUL or space, space, and the sum of its bytes. */
static int checksum_ok(const byte *header)
{
    const uint64_t even = 0x00ff00ff00ff00ff;
    uint64_t sums = 0, word; /* of four columns of bytes, each of which is less than 2^16 */
    unsigned sum = 8 * ' ';
    for (int at = 0; at < BLOCK; at += 8) {
        memcpy(&word, header + at, 8);
        sums += (word & even) + (word >> 8 & even);
    }
    for (; sums; sums >>= 16)
        sum += sums & 0xffff;
    for (int at = 148; at < 156; at++)
        sum -= header[at];
    return header[155] == ' ' && number(header + 148, 7) == (long long)sum;
}

/* Return the payload of the extension header at `at`, and set `at` to the header after it, which is in the window as
   well; no bytes if they are not both there. */
static Span payload(Window *window, long long *at)
{
    Span none = {NULL, 0};
    const byte *header = bytes_at(window, *at, BLOCK);
    long long size = number(header + 124, 12), length = BLOCK + (size + BLOCK - 1) / BLOCK * BLOCK;
    if (size < 0 || (header = bytes_at(window, *at, length + BLOCK)) == NULL)
        return none;
    Span found = {header + BLOCK, size};
    *at += length;
    return found;
}

static int is_word(Span keyword, const char *word)
{
    return keyword.length == (long long)strlen(word) && !memcmp(keyword.bytes, word, (size_t)keyword.length);
}

/* Find the `path` in the records of an `x` header. Return 0 if the records say more about the entry, or are malformed. */
static int path_of(Span records, Span *path)
{
    long long at = 0;
    while (at < records.length) {
        long long size = 0, digits = at;
        while (at < records.length && records.bytes[at] >= '0' && records.bytes[at] <= '9' && at - digits < 8)
            size = size * 10 + (records.bytes[at++] - '0');
        if (at == digits || at == records.length || records.bytes[at++] != ' ')
            return 0;
        long long end = digits + size - 1; /* of the value; a newline follows */
        if (end <= at || end >= records.length || records.bytes[end] != '\n')
            return 0;
        const byte *equals = memchr(records.bytes + at, '=', (size_t)(end - at));
        Span keyword = {records.bytes + at, equals ? equals - (records.bytes + at) : 0};
        if (keyword.length == 0 || is_word(keyword, "size") || is_word(keyword, "linkpath") ||
            (keyword.length > 11 && !memcmp(keyword.bytes, "GNU.sparse.", 11)))
            return 0;
        if (is_word(keyword, "path")) {
            path->bytes = equals + 1;
            path->length = records.bytes + end - path->bytes;
        }
        at = end + 1;
    }
    return 1;
}

/* Append up to the first NUL of a field to the name. Return 0 if that is too long. */
static int add_name(Entry *entry, const byte *field, long long width)
{
    const byte *nul = memchr(field, 0, (size_t)width);
    long long length = nul ? nul - field : width;
    if (entry->length + length >= LONGEST_NAME)
        return 0;
    memcpy(entry->name + entry->length, field, (size_t)length);
    entry->length += length;
    return 1;
}

/* Set the name of an entry from its header, or from what an extension header says. Return 0 if it is not plain. */
static int set_name(Entry *entry, const byte *header, Span said)
{
    entry->length = 0;
    if (said.length) {
        if (memchr(said.bytes, 0, (size_t)said.length) || !add_name(entry, said.bytes, said.length))
            return 0;
    } else {
        if (header[345] && !memcmp(header + 257, "ustar", 6)) {
            if (!memcmp(header + 508, "tar", 4) || !add_name(entry, header + 345, 155))
                return 0; /* star's prefix is shorter */
            entry->name[entry->length++] = '/';
        }
        long long before = entry->length;
        if (!add_name(entry, header, 100) || entry->length == before)
            return 0;
    }
    entry->slash = entry->length;
    while (entry->slash > 0 && entry->name[entry->slash - 1] != '/')
        entry->slash--;
    const byte *dot = memchr(entry->name + entry->slash, '.', (size_t)(entry->length - entry->slash));
    entry->dot = dot ? dot - entry->name : 0;
    return entry->dot > entry->slash;
}

/* Read the entry at `at`. Return 0 if it is not a regular file with a key, its headers are not in the window, or it ends
   after the archive. */
static int read_entry(Archive *archive, long long at, Entry *entry)
{
    Span said = {NULL, 0};
    const byte *header = bytes_at(&archive->window, at, BLOCK);
    if (header == NULL || !checksum_ok(header))
        return 0;
    entry->start = at;
    byte type = header[156];
    if (type == 'x' || type == 'L') {
        Span records = payload(&archive->window, &at);
        if (records.bytes == NULL)
            return 0;
        if (type == 'L') {
            const byte *nul = records.length ? memchr(records.bytes, 0, (size_t)records.length) : NULL;
            said = records;
            said.length = nul ? nul - records.bytes : records.length;
        } else if (!path_of(records, &said))
            return 0;
        header = bytes_at(&archive->window, at, BLOCK); /* `said` stays: it is in the window */
        if (!checksum_ok(header))
            return 0;
        type = header[156];
    }
    entry->data = at + BLOCK;
    entry->size = number(header + 124, 12);
    entry->stop = entry->data + (entry->size + BLOCK - 1) / BLOCK * BLOCK;
    return type == '0' && entry->size >= 0 && entry->stop <= archive->whole && set_name(entry, header, said);
}

/* Return whether an entry has the same key as the one before it. */
static int same_key(const Entry *entry, const Entry *before)
{
    return entry->dot == before->dot && entry->slash == before->slash &&
           !memcmp(entry->name, before->name, (size_t)entry->dot);
}

/* Return whether the name of an entry differs from those of `count` others. */
static int is_new(const Entry *entry, const Entry *others, int count)
{
    while (count-- > 0)
        if (others[count].length == entry->length && !memcmp(others[count].name, entry->name, (size_t)entry->length))
            return 0;
    return 1;
}

/* Return the content of the field in the current sample, of the first whose name in lower case it is; else no bytes. */
static Span find_content(Archive *archive)
{
    Span content = {NULL, 0}, field = archive->field;
    for (const Entry *entry = archive->entries; entry < archive->entries + archive->count; entry++) {
        const byte *name = entry->name + entry->dot + 1;
        long long at = 0;
        if (entry->length - entry->dot - 1 != field.length)
            continue;
        while (at < field.length && (name[at] | (name[at] >= 'A' && name[at] <= 'Z' ? 32 : 0)) == field.bytes[at])
            at++;
        if (at == field.length) {
            content.bytes = bytes_at(&archive->window, entry->data, entry->size);
            content.length = entry->size;
            break;
        }
    }
    return content;
}

/* Return whether a key is certainly that of names that stay inside of a directory. */
static int is_safe(const Entry *entry)
{
    for (long long at = 1; at < entry->slash; at++)
        if (entry->name[at] == '.' && entry->name[at - 1] == '.')
            return 0;
    return entry->name[0] != '/';
}

static void copy(Entry *target, const Entry *entry)
{
    memcpy(target, entry, offsetof(Entry, name) + (size_t)entry->length);
}

/* Go to an archive's first sample, at `at`. */
static void open_archive(Archive *archive, long long at)
{
    archive->count = at >= 0 && read_entry(archive, at, archive->entries) ? 0 : -1;
}

/* Open an archive of which a buffer is in memory. The arguments are the buffer, the offset of the first sample in it,
   `base`, `whole`, and if `format` says so a field. Return 0 after an error. */
static int open_buffer(Archive *archive, PyObject *arguments, const char *format)
{
    Window *window = &archive->window;
    long long at;
    const char *field = NULL;
    Py_ssize_t length = 0;
    if (!PyArg_ParseTuple(arguments, format, &archive->view, &at, &window->base, &archive->whole, &field, &length))
        return 0;
    archive->field.bytes = (const byte *)field;
    archive->field.length = length;
    window->held.bytes = archive->view.buf;
    window->held.length = archive->view.len;
    window->fd = -1;
    open_archive(archive, window->base + at);
    return 1;
}

/* Go to the next sample. Return the number of its entries, 0 if it is not plain or what follows it is not there. */
static int next_sample(Archive *archive)
{
    Entry *first = archive->entries;
    if (archive->count > 0)
        copy(first, first + archive->count);
    for (int count = 1; archive->count >= 0 && count <= MOST_ENTRIES; count++) {
        Entry *entry = first + count;
        if (!read_entry(archive, entry[-1].stop, entry))
            break;
        if (!same_key(entry, first))
            return archive->count = count;
        if (!is_new(entry, first, count))
            break;
    }
    archive->count = -1;
    return 0;
}

/* Return an entry as `Raw` in tarkit/tar/reader.py. */
static PyObject *make_raw(const Entry *entry)
{
    const long long numbers[] = {entry->start, entry->data, entry->size, entry->stop};
    PyObject *raw = PyTuple_New(8);
    if (raw == NULL)
        return NULL;
    PyTuple_SetItem(raw, 0, PyBytes_FromStringAndSize((const char *)entry->name, (Py_ssize_t)entry->length));
    for (int at = 0; at < 4; at++)
        PyTuple_SetItem(raw, at + 1, PyLong_FromLongLong(numbers[at]));
    PyTuple_SetItem(raw, 5, PyBytes_FromStringAndSize("0", 1));
    PyTuple_SetItem(raw, 6, PyBytes_FromStringAndSize("", 0));
    PyTuple_SetItem(raw, 7, PyLong_FromLong(-1));
    if (PyErr_Occurred())
        Py_CLEAR(raw);
    return raw;
}

/* Append an object to a list, and give it up. Return 0 if it is NULL, or after another error. */
static int append(PyObject *list, PyObject *item)
{
    int failed = item == NULL || PyList_Append(list, item);
    Py_XDECREF(item);
    return !failed;
}

static PyObject *samples(PyObject *module, PyObject *arguments)
{
    (void)module;
    Archive archive;
    if (!open_buffer(&archive, arguments, "y*LLL"))
        return NULL;
    PyObject *found = PyList_New(0);
    int good = found != NULL;
    while (good && PyList_Size(found) < MOST_SAMPLES && next_sample(&archive)) {
        const Entry *first = archive.entries;
        PyObject *entries = PyList_New(0);
        good = entries != NULL;
        for (int at = 0; good && at < archive.count; at++)
            good = append(entries, make_raw(first + at));
        good = good && append(found, Py_BuildValue("(y#O)", first->name, (Py_ssize_t)first->dot, entries));
        Py_XDECREF(entries);
    }
    PyBuffer_Release(&archive.view);
    if (!good)
        Py_CLEAR(found);
    return found;
}

/* Return the samples from the first one on as a run. It ends with a sample of fewer than `least` bytes, and with the one
   that makes it longer than `most`. */
static PyObject *make_run(Archive *archive, long long least, long long most)
{
    Entry last;
    long long stops[LONGEST_RUN], count = 0, length = 0, size = least;
    PyObject *keys = PyList_New(0), *contents = PyList_New(0), *found = NULL;
    int good = keys != NULL && contents != NULL;
    while (good && count < LONGEST_RUN && size >= least && length <= most && next_sample(archive) &&
           is_safe(archive->entries)) {
        const Entry *first = archive->entries;
        if (archive->field.bytes) {
            Span content = find_content(archive);
            if (content.bytes == NULL)
                break;
            good = append(contents, PyBytes_FromStringAndSize((const char *)content.bytes, (Py_ssize_t)content.length));
        }
        copy(&last, first + archive->count - 1);
        size = last.stop - first->start;
        length += size;
        stops[count++] = last.stop;
        good = good && append(keys, PyBytes_FromStringAndSize((const char *)first->name, (Py_ssize_t)first->dot));
    }
    good = good && !PyErr_Occurred();
    if (good && count)
        found = Py_BuildValue("(Oy#ON)", keys, stops, (Py_ssize_t)count * (Py_ssize_t)sizeof(*stops), contents,
                              make_raw(&last));
    else if (good)
        found = Py_NewRef(Py_None);
    Py_XDECREF(keys);
    Py_XDECREF(contents);
    return found;
}

static PyObject *run(PyObject *module, PyObject *arguments)
{
    (void)module;
    Archive archive;
    if (!open_buffer(&archive, arguments, "y*LLLz#"))
        return NULL;
    PyObject *found = make_run(&archive, 0, INT64_MAX);
    PyBuffer_Release(&archive.view);
    return found;
}

static PyObject *run_of_file(PyObject *module, PyObject *arguments)
{
    (void)module;
    Archive archive;
    long long at, least, most;
    if (!PyArg_ParseTuple(arguments, "iLLLLL", &archive.window.fd, &archive.window.offset, &at, &archive.whole, &least,
                          &most))
        return NULL;
    archive.field.bytes = NULL;
    archive.window.base = archive.window.held.length = 0;
    open_archive(&archive, at);
    return make_run(&archive, least, most);
}

static PyObject *gather(PyObject *module, PyObject *arguments)
{
    (void)module;
    int fds[MOST_RANGES], good = 1;
    long long from[MOST_RANGES], sizes[MOST_RANGES], total = 0;
    PyObject *lists[3];
    if (!PyArg_ParseTuple(arguments, "O!O!O!", &PyTuple_Type, lists, &PyTuple_Type, lists + 1, &PyTuple_Type, lists + 2))
        return NULL;
    Py_ssize_t count = PyTuple_Size(lists[0]);
    if (count > MOST_RANGES || PyTuple_Size(lists[1]) != count || PyTuple_Size(lists[2]) != count)
        Py_RETURN_NONE;
    for (Py_ssize_t at = 0; at < count; total += sizes[at++]) {
        fds[at] = PyObject_AsFileDescriptor(PyTuple_GetItem(lists[0], at));
        from[at] = PyLong_AsLongLong(PyTuple_GetItem(lists[1], at));
        sizes[at] = PyLong_AsLongLong(PyTuple_GetItem(lists[2], at));
        if (PyErr_Occurred())
            return NULL;
        if (sizes[at] < 0 || sizes[at] > MOST_GATHERED - total)
            Py_RETURN_NONE;
    }
    PyObject *found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (found == NULL)
        return NULL;
    char *into = PyBytes_AsString(found);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; good && at < count; into += sizes[at++])
        good = pread(fds[at], into, (size_t)sizes[at], (off_t)from[at]) == sizes[at];
    Py_END_ALLOW_THREADS
    if (good)
        return found;
    Py_DECREF(found);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"samples", samples, METH_VARARGS,
     "samples(data, at, base, whole)\n--\n\n"
     "Return the plain samples that follow each other from data[at] on, each as (key, entries).\n\n"
     "There are at most 64; the last one is before the first sample that is not plain, or whose end is not in `data`.\n"
     "`base` is the offset of `data` in the archive, `whole` the length of the archive."},
    {"run", run, METH_VARARGS,
     "run(data, at, base, whole, field)\n--\n\n"
     "Return the samples that `samples` finds, as (keys, stops, contents, last): a list of the keys, the ends as\n"
     "native int64, a list of the contents of a field, and the last entry. None if there is no sample.\n\n"
     "There are at most 1024, all with names that are safe, and with the field unless it is None."},
    {"run_of_file", run_of_file, METH_VARARGS,
     "run_of_file(fd, offset, at, whole, least, most)\n--\n\n"
     "Return the plain samples that follow each other from `at` on in the archive at `offset` of a file, as `run` does.\n\n"
     "It ends with a sample of fewer than `least` bytes, and with the one that makes it longer than `most`."},
    {"gather", gather, METH_VARARGS,
     "gather(fds, positions, sizes)\n--\n\n"
     "Return ranges of files, one after the other. None if one is not all there, there are more than 256, or they\n"
     "are longer than 64 MiB together."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_fast", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void) { return PyModuleDef_Init(&definition); }
