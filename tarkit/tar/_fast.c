/* The plain samples of an archive, found in one pass over the bytes that are in memory: the optional accelerator.

   `samples` does what `TarReader.raw` and `EntryGroups.read` do, for regular files of USTAR, GNU and PAX headers. It
   stops before anything else (another type, a number or record of another form, a checksum that is not the unsigned sum,
   an entry without a key, a repeated name), and Python reads on from there. It never decides that something is wrong.

   Nothing outside of [data, data + length) is read, and no memory is allocated but for the result.
   Sources: see tarkit/tar/reader.py. */

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

enum { BLOCK = 512, LONGEST_NAME = 1024, MOST_ENTRIES = 64, MOST_SAMPLES = 64 };

typedef unsigned char byte;

typedef struct {
    const byte *bytes;
    long long length;
} Span;

typedef struct {
    long long start, data, size, stop; /* offsets in the buffer */
    long long length, slash, dot;      /* of the name: its length, the end of its directory, its first dot after that */
    byte name[LONGEST_NAME];
} Entry;

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

/* Return whether the checksum of a header is six octal digits, NUL, space, and the sum of its bytes. */
static int checksum_ok(const byte *header)
{
    unsigned sum = 0;
    for (int at = 0; at < BLOCK; at++)
        sum += header[at];
    for (int at = 148; at < 156; at++)
        sum += ' ' - header[at];
    return header[155] == ' ' && number(header + 148, 7) == (long long)sum;
}

/* Return the payload of the extension header at `at`, and set `at` to the header after it; no bytes if that is beyond
   the buffer. */
static Span payload(const byte *data, long long length, long long *at)
{
    Span none = {NULL, 0};
    long long size = number(data + *at + 124, 12), next;
    if (size < 0 || size > length)
        return none;
    next = *at + BLOCK + (size + BLOCK - 1) / BLOCK * BLOCK;
    if (next + BLOCK > length)
        return none;
    Span found = {data + *at + BLOCK, size};
    *at = next;
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

/* Read the entry at `at`. Return 0 if it is not a regular file with a key, is not in the buffer up to its payload, or
   ends after `whole`. */
static int read_entry(const byte *data, long long length, long long at, long long whole, Entry *entry)
{
    Span said = {NULL, 0};
    if (at > length - BLOCK || !checksum_ok(data + at))
        return 0;
    entry->start = at;
    byte type = data[at + 156];
    if (type == 'x' || type == 'L') {
        Span records = payload(data, length, &at);
        if (records.bytes == NULL)
            return 0;
        if (type == 'L') {
            const byte *nul = records.length ? memchr(records.bytes, 0, (size_t)records.length) : NULL;
            said = records;
            said.length = nul ? nul - records.bytes : records.length;
        } else if (!path_of(records, &said))
            return 0;
        if (!checksum_ok(data + at))
            return 0;
        type = data[at + 156];
    }
    entry->data = at + BLOCK;
    entry->size = number(data + at + 124, 12);
    entry->stop = entry->data + (entry->size + BLOCK - 1) / BLOCK * BLOCK;
    return type == '0' && entry->size >= 0 && entry->stop <= whole && set_name(entry, data + at, said);
}

/* Return whether an entry has the same key as the one before it. */
static int same_key(const Entry *entry, const Entry *before)
{
    return entry->dot == before->dot && entry->slash == before->slash &&
           !memcmp(entry->name, before->name, (size_t)entry->dot);
}

/* Return whether the name of an entry differs from those of the entries in a list. */
static int is_new(const Entry *entry, PyObject *entries)
{
    for (Py_ssize_t index = PyList_Size(entries) - 1; index >= 0; index--) {
        PyObject *name = PyTuple_GetItem(PyList_GetItem(entries, index), 0);
        if (PyBytes_Size(name) == entry->length && !memcmp(PyBytes_AsString(name), entry->name, (size_t)entry->length))
            return 0;
    }
    return 1;
}

/* Append an entry to a list, as `Raw` in tarkit/tar/reader.py. Return -1 after an error. */
static int append(PyObject *entries, const Entry *entry, long long base)
{
    const long long numbers[] = {base + entry->start, base + entry->data, entry->size, base + entry->stop};
    PyObject *raw = PyTuple_New(8);
    if (raw == NULL)
        return -1;
    PyTuple_SetItem(raw, 0, PyBytes_FromStringAndSize((const char *)entry->name, (Py_ssize_t)entry->length));
    for (int at = 0; at < 4; at++)
        PyTuple_SetItem(raw, at + 1, PyLong_FromLongLong(numbers[at]));
    PyTuple_SetItem(raw, 5, PyBytes_FromStringAndSize("0", 1));
    PyTuple_SetItem(raw, 6, PyBytes_FromStringAndSize("", 0));
    PyTuple_SetItem(raw, 7, PyLong_FromLong(-1));
    int failed = PyErr_Occurred() != NULL || PyList_Append(entries, raw);
    Py_DECREF(raw);
    return failed ? -1 : 0;
}

/* Read the sample at `at`; the first entry of the next one is stored in `entry`. Return its entries, an empty list if it
   is not plain or its end is not in the buffer, NULL after an error. */
static PyObject *read_sample(const byte *data, long long length, long long at, long long base, long long whole,
                             Entry *first, Entry *entry)
{
    PyObject *entries = PyList_New(0);
    if (entries == NULL || !read_entry(data, length, at, whole - base, first))
        return entries;
    *entry = *first;
    for (int count = 0; count < MOST_ENTRIES; count++) {
        if (append(entries, entry, base) || !read_entry(data, length, entry->stop, whole - base, entry))
            break;
        if (!same_key(entry, first))
            return entries;
        if (!is_new(entry, entries))
            break;
    }
    if (PyErr_Occurred() || PyList_SetSlice(entries, 0, PyList_Size(entries), NULL)) {
        Py_DECREF(entries);
        return NULL;
    }
    return entries;
}

static PyObject *samples(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer view;
    long long at, base, whole;
    if (!PyArg_ParseTuple(arguments, "y*LLL", &view, &at, &base, &whole))
        return NULL;
    PyObject *found = PyList_New(0);
    Entry first, next;
    while (found != NULL && at >= 0 && PyList_Size(found) < MOST_SAMPLES) {
        PyObject *sample = NULL, *entries = read_sample(view.buf, view.len, at, base, whole, &first, &next);
        Py_ssize_t count = entries == NULL ? -1 : PyList_Size(entries);
        if (count > 0)
            sample = Py_BuildValue("(y#O)", first.name, (Py_ssize_t)first.dot, entries);
        if (count < 0 || (count > 0 && (sample == NULL || PyList_Append(found, sample)))) {
            Py_DECREF(found);
            found = NULL;
        }
        at = count > 0 ? next.start : -1;
        Py_XDECREF(sample);
        Py_XDECREF(entries);
    }
    PyBuffer_Release(&view);
    return found;
}

static PyMethodDef methods[] = {
    {"samples", samples, METH_VARARGS,
     "samples(data, at, base, whole)\n--\n\n"
     "Return the plain samples that follow each other from data[at] on, each as (key, entries).\n\n"
     "There are at most 64; the last one is before the first sample that is not plain, or whose end is not in `data`.\n"
     "`base` is the offset of `data` in the archive, `whole` the length of the archive."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_fast", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void) { return PyModuleDef_Init(&definition); }
