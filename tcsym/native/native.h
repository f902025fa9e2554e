/* SPDX-License-Identifier: Apache-2.0 */
/* The native part of the run time: what its files know of each other. */
#ifndef TCSYM_NATIVE_H
#define TCSYM_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <structmember.h>

#include "pool.h"

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL tcsym_numpy
#ifndef TCSYM_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

/* An entry takes at most so many parameters, and gives so many outputs. */
enum { MOST_ARRAYS = 64, MOST_RANK = 8 }; /* the latter: of arrays that describe themselves */
enum { OUT, THREADS, SIZES, N_OPTIONS }; /* `kernel(..., out=, threads=, sizes=)` */
#define SIZE_BOUND INT64_C(0x80000000)   /* sizes in native calls are below it */
#define MOST_BYTES 0x1p46                /* more than any memory has */

/* ---- formulas.c: straight-line programs over the values of a call */

typedef struct {
    int64_t operation, to, a, b, c;
} Step;

/* Words from Python that are left to read. */
typedef struct {
    const int64_t *next, *end;
} Words;

Words tcsym_words(PyObject *bytes);
/* The next `n` words; null, and ValueError set, if there are not so many. */
const int64_t *tcsym_take(Words *words, int64_t n);

/* Runs the steps. False where a value does not fit 64 bits, or a required one is 0. */
bool tcsym_evaluate(const Step *steps, int64_t n_steps, int64_t *values);

/* ---- arrays.c: arguments in memory */

typedef enum { OTHER, NUMPY, EXCHANGED, DESCRIBED } Library;

/* Memory of an array. Strides times `unit` are bytes. `type`: an element type of numpy's, or one of
 * DLPack's in `code`. `place`, `device`: DLPack's type and number of the device that has the memory.
 * Extents and strides belong to the array object, or are in the call's room. `stream`: on which what
 * is done with a described array is, if it `has_stream`. */
typedef struct {
    Library library;
    int32_t place, device;
    bool dense, writable;
    int rank;
    uint32_t code;
    PyArray_Descr *type;
    char *data;
    const int64_t *extents, *strides;
    int64_t unit;
    void *stream;
    bool has_stream;
} Array;
typedef int64_t Room[2 * MOST_RANK]; /* for extents and strides */

typedef enum { DENSE, ROWS, COLUMNS, ANY } Layout;

/* What an array must be; a `rank` below 0: no array, but a size, the value of `axes[0]`, which it
 * tells if `binds[0]`, else must be if it is given. `exact`: of that layout and no stricter one. `kind`, `low`, `high`: which
 * numbers may stand for an element, see `tcsym_element`. `axes`: for each axis the number of a value
 * of the call; `binds`: whether the array tells that value, instead of having to agree with it. */
typedef struct {
    PyArray_Descr *type;
    uint32_t code;
    int64_t rank, layout, bytes, kind, low, high;
    const int64_t *axes, *binds;
    bool exact;
} Wanted;

/* A call on its way: the arguments as they came, and what was found out about them. Entries and
 * switches with the same `names` (of parameters, then of options) share it. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t n_args;
    PyObject *keywords;
    PyObject *held; /* a list of what shows arrays' memory, or null; the call's */
    PyObject *names;
    bool is_read;
    PyObject *given[MOST_ARRAYS + N_OPTIONS]; /* borrowed; null: was not given */
    Array arrays[MOST_ARRAYS];
    Room rooms[MOST_ARRAYS];
} Call;

bool tcsym_read_call(Call *call, PyObject *names);
/* Values of sizes that no array tells: a parameter does, or `sizes=`, a dict. places: for each the
 * number of its value and the place of its parameter, -1 without one. only_these: the dict has no
 * others. */
bool tcsym_read_sizes(const Call *call, PyObject *names, const int64_t *places, bool only_these,
                      int64_t *values);
/* Value of an `int` in [low, high]; false for anything else. */
bool tcsym_integer(PyObject *x, int64_t low, int64_t high, int64_t *value);
/* The same for an `int` or an integer of numpy's that may be a size. */
bool tcsym_size(PyObject *x, int64_t *value);
void tcsym_read_array(PyObject *object, Array *array, int64_t *room, PyObject **held);
bool tcsym_is_dense(const Array *array);
bool tcsym_fits(const Array *array, const Wanted *wanted);
bool tcsym_element(PyObject *number, const Wanted *wanted, int64_t *element);
/* A new dense array of a library, on the host or on a device of that number; null, and no error set,
 * if there is none. */
enum { ON_HOST = -1 };
PyObject *tcsym_new_array(Library library, int device, const Wanted *wanted, const int64_t *extents,
                          Array *array);
/* The stream on which the library of exchanged arrays works on a device. False if it does not say. */
bool tcsym_current_stream(int device, void **stream);
/* True if the caller may have `array` written: no two elements share a byte, and none of them is in
 * one of the `n` arrays before it. */
bool tcsym_is_apart(const Array *array, const Array *others, int n, int64_t bytes);
/* Tells the library of an array that it is about to be written. */
bool tcsym_note_written(PyObject *object, Library library);
PyObject *tcsym_set_exchange(PyObject *module, PyObject *args);

/* ---- described.c: arrays that describe themselves, on devices */

bool tcsym_read_described(PyObject *object, Array *array, int64_t *room, PyObject **held);
/* As `tcsym_new_array`, in the kind of another one, for what is done on a stream. */
PyObject *tcsym_new_described(PyObject *like, int device, void *stream, const Wanted *wanted,
                              const int64_t *extents, Array *array);
PyObject *tcsym_set_described(PyObject *module, PyObject *args);
PyObject *tcsym_describe(PyObject *module, PyObject *args);
PyObject *tcsym_read_capsule(PyObject *module, PyObject *capsule);
PyObject *tcsym_make_capsule(PyObject *module, PyObject *args);

/* ---- entry.c, switch.c, chain.c */

extern PyTypeObject tcsym_Entry, tcsym_Switch, tcsym_Chain;
PyObject *tcsym_pass_on(PyObject *function, Call *call);

/* ---- launch.c: scratch memory, running a kernel */

typedef struct {
    PyObject_HEAD
    _Atomic int32_t busy;
    struct {
        void *memory;
        int64_t capacity;
    } shared, private;
} Arena;
typedef struct {
    PyObject_HEAD
    Pool *pool;
} PoolObject;
typedef int32_t Kernel(void *const *buffers, const int64_t *sizes, void *context);
enum { ARENA_BUSY = -1, OUT_OF_MEMORY = -2, CODE_MISSING = -3, SIMT_FAULT = -5 };
enum { DRIVER_ERROR = -1000 }; /* less what a device's driver calls the error */

extern PyTypeObject tcsym_Arena, tcsym_Pool;
int32_t tcsym_launch(Kernel *kernel, void *const *buffers, const int64_t *sizes, Arena *arena,
                     int64_t shared_bytes, int64_t private_bytes, int64_t threads, Pool *pool);
void tcsym_missing_task(void *data, void *arena, int64_t lower, int64_t upper);
PyObject *tcsym_launch_kernel(PyObject *module, PyObject *args);

/* ---- blocks.c: memory of large results */

extern int64_t tcsym_large; /* bytes of a large result */
bool tcsym_is_decided(void); /* how much memory may be idle */
void *tcsym_take_block(int64_t bytes);
void tcsym_give_block(void *block);
/* As `PyArray_NewFromDescr`, dense, with a block as its memory. Steals a reference to `type`. */
PyObject *tcsym_block_array(PyArray_Descr *type, int rank, const int64_t *extents);
PyObject *tcsym_large_array(PyObject *module, PyObject *args);
PyObject *tcsym_set_idle_memory(PyObject *module, PyObject *most);
PyObject *tcsym_idle_memory(PyObject *module, PyObject *nothing);
bool tcsym_make_handler(void);

/* ---- device.c: grids of a device */

extern PyTypeObject tcsym_Grids;
int tcsym_device_of(PyObject *grids);
bool tcsym_has_faults(PyObject *grids);
PyObject *tcsym_missing_of_driver(PyObject *module, PyObject *nothing);
void tcsym_mark(_Atomic int64_t *word); /* for the driver: what is to happen once something is gone */
/* A number among the buffers, which is written behind the scratch memory. */
typedef struct {
    int64_t value, bytes, buffer;
} Number;
/* Calls the host half of a kernel, which enqueues on `stream`. ARENA_BUSY: there is no scratch memory
 * of so many bytes for that. */
int32_t tcsym_enqueue(PyObject *grids, Kernel *kernel, void **buffers, const int64_t *sizes,
                      int64_t scratch_bytes, void *stream, const Number *numbers, int64_t n_numbers);
/* The same with scratch memory of the caller's. */
int32_t tcsym_enqueue_in(PyObject *grids, Kernel *kernel, void *const *buffers, const int64_t *sizes,
                         uint64_t scratch, void *stream);
/* Writes numbers behind each other, and says so in the buffers. 0, or the driver's code. */
int tcsym_write_numbers(PyObject *grids, uint64_t at, void **buffers, const Number *numbers, int64_t n,
                        void *stream);
int32_t tcsym_copy_on_device(PyObject *grids, const int64_t *copy, void *stream); /* to, from, bytes */

/* ---- simt.c: blocks of a device on the host */

typedef struct Simt Simt;
typedef void Region(void *data, char *shared, int64_t block, int64_t thread, Simt *simt);
int32_t tcsym_simt_grid(Region *region, void *data, int64_t blocks, int64_t threads,
                        int64_t shared_bytes, int64_t together, int64_t backwards);
void tcsym_simt_barrier(Simt *simt, int64_t site);
int64_t tcsym_simt_blocks(Simt *simt);
void tcsym_simt_grid_barrier(Simt *simt, const int32_t *counter, int64_t site);
int64_t tcsym_simt_shuffle(Simt *simt, int64_t value, int64_t source, int64_t site);
void tcsym_simt_touch(Simt *simt, const char *at, int64_t bytes, int64_t writes, int64_t line);
void tcsym_simt_global(Simt *simt, const char *at, int64_t bytes, int64_t writes, int64_t k,
                       int64_t line);
void tcsym_simt_globals(const void *globals, int64_t n, const int32_t *fault);
void tcsym_simt_copy(Simt *simt, char *to, const char *from, int64_t bytes, int64_t reads);
void tcsym_simt_commit(Simt *simt);
void tcsym_simt_wait(Simt *simt, int64_t left);
void tcsym_simt_multiply(Simt *simt, float *held, int64_t depth, int64_t site);
PyObject *tcsym_simt_report(PyObject *module, PyObject *nothing);
PyObject *tcsym_simt_check(PyObject *module, PyObject *whether);

#endif
