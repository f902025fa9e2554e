/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays on devices that describe themselves, by `__cuda_array_interface__` or by DLPack's capsules
 * alone, and new ones beside them.
 *
 * Python names the types that are read here, once a call with such arrays came through it; it makes
 * new arrays, too, in the kind of the arguments. */
#include "native.h"
#include "dlpack.h"

enum { MOST_TYPES = 16, LEGACY_STREAM = 1 };
typedef int PointerAttribute(void *data, int attribute, uint64_t pointer);
enum { DEVICE_ORDINAL = 9 }; /* of cuda.h */

static struct {
    struct {
        PyTypeObject *type;
        int has_interface; /* else it is read by capsules */
    } types[MOST_TYPES];
    int n_types;
    PyObject *make;
    PointerAttribute *attribute; /* null: there is one device */
    PyObject *interface, *data, *shape, *typestr, *strides, *stream, *mask, *capsule; /* names */
    PyObject *legacy, *version, *settings; /* what `__dlpack__` is given, by names */
} described;

/* set_described(make, attribute): who makes arrays, and how the driver tells a pointer's device */
PyObject *tcsym_set_described(PyObject *module, PyObject *args) {
    PyObject *make;
    unsigned long long attribute;
    if (!PyArg_ParseTuple(args, "OK:set_described", &make, &attribute))
        return NULL;
    struct {
        PyObject **name;
        const char *text;
    } names[] = {{&described.interface, "__cuda_array_interface__"}, {&described.data, "data"},
                 {&described.shape, "shape"},     {&described.typestr, "typestr"},
                 {&described.strides, "strides"}, {&described.stream, "stream"},
                 {&described.mask, "mask"},       {&described.capsule, "__dlpack__"}};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (!*names[k].name && !(*names[k].name = PyUnicode_InternFromString(names[k].text)))
            return NULL;
    if (!described.settings) {
        described.legacy = PyLong_FromLong(LEGACY_STREAM);
        described.version = Py_BuildValue("(ii)", DLPACK_MAJOR, 0);
        if (!described.legacy || !described.version ||
            !(described.settings = Py_BuildValue("(Os)", described.stream, "max_version")))
            return NULL;
    }
    Py_XSETREF(described.make, Py_NewRef(make));
    described.attribute = (PointerAttribute *)(uintptr_t)attribute;
    Py_RETURN_NONE;
}

static int place_of(PyTypeObject *type) {
    int k = described.n_types;
    while (k-- > 0 && described.types[k].type != type)
        ;
    return k;
}

/* describe(type, has_interface): whether its instances are read here from now on */
PyObject *tcsym_describe(PyObject *module, PyObject *args) {
    PyObject *type;
    int has_interface;
    if (!PyArg_ParseTuple(args, "O!p:describe", &PyType_Type, &type, &has_interface))
        return NULL;
    if (!described.make)
        Py_RETURN_FALSE;
    if (place_of((PyTypeObject *)type) < 0) {
        if (described.n_types == MOST_TYPES)
            Py_RETURN_FALSE;
        described.types[described.n_types].type = (PyTypeObject *)Py_NewRef(type); /* for ever */
        described.types[described.n_types++].has_interface = has_interface;
    }
    Py_RETURN_TRUE;
}

static PyObject *item(PyObject *interface, PyObject *name) {
    PyObject *found = PyDict_GetItemWithError(interface, name);
    return found == Py_None ? NULL : found;
}

static bool read_numbers(PyObject *tuple, int n, int64_t *numbers) {
    if (!PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) != n)
        return false;
    for (int k = 0; k < n; k++)
        if (!tcsym_integer(PyTuple_GET_ITEM(tuple, k), -SIZE_BOUND * SIZE_BOUND / 2,
                           SIZE_BOUND * SIZE_BOUND / 2, numbers + k))
            return false;
    return true;
}

/* `<f4`: kind and bytes. */
static bool read_type(PyObject *typestr, Array *array) {
    Py_ssize_t n;
    const char *text = typestr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, &n) : NULL;
    static const char kinds[] = "iuf___b"; /* by DLPack's codes */
    const char *kind = text && n == 3 && text[0] != '>' ? strchr(kinds, text[1]) : NULL;
    if (!kind || *kind == '_' || text[2] < '1' || text[2] > '8')
        return false;
    array->unit = text[2] - '0';
    array->code = (uint32_t)(kind - kinds) | (uint32_t)(8 * array->unit) << 8 | 1 << 16;
    return true;
}

static bool read_memory(PyObject *data, Array *array) {
    if (!data || !PyTuple_CheckExact(data) || PyTuple_GET_SIZE(data) != 2 ||
        !PyLong_Check(PyTuple_GET_ITEM(data, 0)))
        return false;
    uint64_t pointer = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(data, 0));
    int number = 0;
    if (pointer && described.attribute && described.attribute(&number, DEVICE_ORDINAL, pointer))
        return false;
    array->place = DLPACK_CUDA;
    array->device = number;
    array->data = (char *)(uintptr_t)pointer;
    array->writable = PyTuple_GET_ITEM(data, 1) == Py_False;
    return true;
}

/* `strides` are there or null, for a dense array; `unit`: bytes of what they count. */
static bool set_layout(Array *array, const int64_t *extents, const int64_t *strides, int64_t unit,
                       int64_t *room) {
    array->extents = room;
    array->strides = room + MOST_RANK;
    int64_t dense = 1;
    for (int d = array->rank; d-- > 0; dense *= extents[d]) {
        room[d] = extents[d];
        if (strides && strides[d] * unit % array->unit)
            return false;
        room[MOST_RANK + d] = strides ? strides[d] * unit / array->unit : dense;
    }
    array->dense = tcsym_is_dense(array);
    return true;
}

static bool read_layout(PyObject *shape, PyObject *strides, Array *array, int64_t *room) {
    Room found;
    if (!shape || !PyTuple_CheckExact(shape) || PyTuple_GET_SIZE(shape) > MOST_RANK)
        return false;
    array->rank = (int)PyTuple_GET_SIZE(shape);
    return read_numbers(shape, array->rank, found) &&
           (!strides || read_numbers(strides, array->rank, found + MOST_RANK)) &&
           set_layout(array, found, strides ? found + MOST_RANK : NULL, 1, room);
}

/* One that says nothing of a stream is of the default one, as versions before 3 are. */
static bool read_stream(PyObject *interface, Array *array) {
    PyObject *stream = PyDict_GetItemWithError(interface, described.stream);
    array->has_stream = stream != Py_None;
    array->stream = NULL;
    if (!stream || stream == Py_None)
        return true;
    unsigned long long handle = PyLong_Check(stream) ? PyLong_AsUnsignedLongLong(stream) : 0;
    array->stream = handle == LEGACY_STREAM ? NULL : (void *)(uintptr_t)handle;
    return handle != 0;
}

static bool read_interface(PyObject *object, Array *array, int64_t *room) {
    PyObject *interface = PyObject_GetAttr(object, described.interface);
    bool good = interface && PyDict_CheckExact(interface) && !item(interface, described.mask) &&
                read_type(item(interface, described.typestr), array) &&
                read_memory(item(interface, described.data), array) &&
                read_layout(item(interface, described.shape), item(interface, described.strides), array,
                            room) &&
                read_stream(interface, array);
    Py_XDECREF(interface);
    return good;
}

static const DLTensor *taken(PyObject *capsule, bool *writable);

/* The producer makes the default stream, on which the call is then, wait for what it has begun. The
 * capsule is kept in the list `held`. */
static bool read_shown(PyObject *object, Array *array, int64_t *room, PyObject **held) {
    PyObject *given[] = {object, described.legacy, described.version};
    PyObject *capsule = PyObject_VectorcallMethod(described.capsule, given, 1, described.settings);
    const DLTensor *tensor = capsule ? taken(capsule, &array->writable) : NULL;
    bool good = tensor && tensor->device.type == DLPACK_CUDA && tensor->ndim <= MOST_RANK &&
                tensor->dtype.bits % 8 == 0 && tensor->dtype.bits &&
                (*held || (*held = PyList_New(0))) && !PyList_Append(*held, capsule);
    Py_XDECREF(capsule);
    if (!good)
        return false;
    array->place = DLPACK_CUDA;
    array->device = tensor->device.id;
    array->data = (char *)tensor->data + tensor->byte_offset;
    array->unit = tensor->dtype.bits / 8;
    array->code = code_of(tensor->dtype);
    array->rank = tensor->ndim;
    array->stream = NULL;
    array->has_stream = true;
    return set_layout(array, tensor->shape, tensor->strides, array->unit, room);
}

bool tcsym_read_described(PyObject *object, Array *array, int64_t *room, PyObject **held) {
    int k = place_of(Py_TYPE(object));
    bool good = k >= 0 && (described.types[k].has_interface
                               ? read_interface(object, array, room)
                               : held && read_shown(object, array, room, held));
    PyErr_Clear();
    return good;
}

PyObject *tcsym_new_described(PyObject *like, int device, void *stream, const Wanted *wanted,
                              const int64_t *extents, Array *array) {
    PyObject *shape = PyTuple_New(wanted->rank), *made = NULL, *result = NULL;
    for (int64_t d = 0; shape && d < wanted->rank; d++)
        PyTuple_SET_ITEM(shape, d, PyLong_FromLongLong(extents[d])); /* null is an error below */
    if (shape && !PyErr_Occurred())
        made = PyObject_CallFunction(described.make, "OOOiK", like, wanted->type, shape, device,
                                     (unsigned long long)(uintptr_t)stream);
    if (made && PyTuple_CheckExact(made) && PyTuple_GET_SIZE(made) == 2) {
        array->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(made, 1));
        array->unit = wanted->bytes;
        array->strides = NULL; /* entries make dense arrays and ask for none */
        result = Py_NewRef(PyTuple_GET_ITEM(made, 0));
    }
    Py_XDECREF(shape);
    Py_XDECREF(made);
    PyErr_Clear();
    return result;
}

/* ---- DLPack's capsules, of version 0 as of 1: a name says which, and whether somebody took it */

/* Of version 0. */
typedef struct Managed {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct Managed *);
} Managed;

static const char *const OLD = "dltensor", *const NEW = "dltensor_versioned";
static const char *const USED_OLD = "used_dltensor", *const USED_NEW = "used_dltensor_versioned";
enum { READ_ONLY = 1 };

static void free_old(PyObject *capsule) {
    Managed *managed = PyCapsule_GetPointer(capsule, USED_OLD);
    if (managed && managed->deleter)
        managed->deleter(managed);
}

static void free_new(PyObject *capsule) {
    DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, USED_NEW);
    if (managed && managed->deleter)
        managed->deleter(managed);
}

/* From now on the capsule owns the tensor: it lives as long. Null, and an error set, if it has none. */
static const DLTensor *taken(PyObject *capsule, bool *writable) {
    bool is_new = PyCapsule_IsValid(capsule, NEW);
    void *pointer = PyCapsule_GetPointer(capsule, is_new ? NEW : OLD);
    if (!pointer)
        return NULL;
    const DLManagedTensorVersioned *versioned = pointer;
    if (is_new && versioned->version.major != DLPACK_MAJOR) {
        PyErr_SetString(PyExc_BufferError, "another version of DLPack");
        return NULL;
    }
    if (PyCapsule_SetName(capsule, is_new ? USED_NEW : USED_OLD) ||
        PyCapsule_SetDestructor(capsule, is_new ? free_new : free_old))
        return NULL;
    *writable = !(is_new && versioned->flags & READ_ONLY);
    return is_new ? &versioned->dl_tensor : &((Managed *)pointer)->dl_tensor;
}

/* read_capsule(capsule): (pointer, shape, strides or None, code of the type, writable) */
PyObject *tcsym_read_capsule(PyObject *module, PyObject *capsule) {
    bool writable;
    const DLTensor *tensor = taken(capsule, &writable);
    if (!tensor)
        return NULL;
    PyObject *shape = PyTuple_New(tensor->ndim);
    PyObject *strides = tensor->strides ? PyTuple_New(tensor->ndim) : Py_NewRef(Py_None);
    for (int d = 0; shape && strides && d < tensor->ndim; d++) {
        PyTuple_SET_ITEM(shape, d, PyLong_FromLongLong(tensor->shape[d]));
        if (tensor->strides)
            PyTuple_SET_ITEM(strides, d, PyLong_FromLongLong(tensor->strides[d]));
    }
    unsigned long long data = (uintptr_t)tensor->data + tensor->byte_offset;
    return Py_BuildValue("KNNIO", data, shape, strides, code_of(tensor->dtype),
                         writable ? Py_True : Py_False);
}

/* A tensor of ours that somebody may take. */
typedef struct {
    union {
        Managed old;
        DLManagedTensorVersioned versioned;
    } managed;
    PyObject *owner;
    int64_t shape_and_strides[];
} Shown;

/* Whoever took the tensor may let it go in any thread, and after the interpreter has ended. */
static void release(Shown *shown) {
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(shown->owner);
        PyGILState_Release(state);
    }
    free(shown);
}

static void delete_old(Managed *managed) { release(managed->manager_ctx); }
static void delete_new(DLManagedTensorVersioned *managed) { release(managed->manager_ctx); }

static void drop_shown(PyObject *capsule) {
    const char *name = PyCapsule_GetName(capsule);
    if (!strcmp(name, NEW) || !strcmp(name, OLD)) /* nobody took it */
        release(PyCapsule_GetPointer(capsule, name));
}

/* make_capsule(owner, pointer, shape, code of the type, device type, device, versioned): of a dense
 * tensor in the owner's memory. */
PyObject *tcsym_make_capsule(PyObject *module, PyObject *args) {
    PyObject *owner, *shape;
    unsigned long long pointer;
    unsigned code;
    int type, device, is_new;
    if (!PyArg_ParseTuple(args, "OKO!Iiip:make_capsule", &owner, &pointer, &PyTuple_Type, &shape, &code,
                          &type, &device, &is_new))
        return NULL;
    Py_ssize_t rank = PyTuple_GET_SIZE(shape);
    Shown *shown = calloc(1, sizeof *shown + 2 * rank * sizeof(int64_t));
    if (!shown)
        return PyErr_NoMemory();
    int64_t *extents = shown->shape_and_strides, stride = 1;
    for (Py_ssize_t d = rank; d-- > 0; stride *= extents[d] ? extents[d] : 1) {
        extents[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
        extents[rank + d] = stride;
    }
    DLTensor *tensor = is_new ? &shown->managed.versioned.dl_tensor : &shown->managed.old.dl_tensor;
    *tensor = (DLTensor){
        .data = (void *)(uintptr_t)pointer,
        .device = {type, device},
        .ndim = (int32_t)rank,
        .dtype = {(uint8_t)code, (uint8_t)(code >> 8), (uint16_t)(code >> 16)},
        .shape = extents,
        .strides = extents + rank,
    };
    if (is_new) {
        shown->managed.versioned.version.major = DLPACK_MAJOR;
        shown->managed.versioned.manager_ctx = shown;
        shown->managed.versioned.deleter = delete_new;
    } else {
        shown->managed.old.manager_ctx = shown;
        shown->managed.old.deleter = delete_old;
    }
    shown->owner = Py_NewRef(owner);
    PyObject *capsule = PyErr_Occurred() ? NULL : PyCapsule_New(shown, is_new ? NEW : OLD, drop_shown);
    if (!capsule)
        release(shown);
    return capsule;
}
