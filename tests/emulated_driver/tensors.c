/* SPDX-License-Identifier: Apache-2.0 */
/* A library of tensors on emulated devices, for what torch's do natively: they show themselves by
 * DLPack's C exchange API. A tensor is dense, of float32, and its memory is the host's. */
#define PY_SSIZE_T_CLEAN
#include "../../tcsym/native/dlpack.h"
#include <Python.h>
#include <stdlib.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    DLManagedTensorVersioned *managed;
    unsigned long long pointer;
} Tensor;
static PyTypeObject type;
static void *stream; /* the current one */

/* The memory stays: work on streams may use it yet. */
static void release(DLManagedTensorVersioned *managed) {
    free(managed->dl_tensor.shape);
    free(managed);
}

static int allocate(DLTensor *like, DLManagedTensorVersioned **out, void *context,
                    void (*error)(void *, const char *, const char *)) {
    DLManagedTensorVersioned *managed = calloc(1, sizeof *managed);
    int64_t *shape = calloc(2 * like->ndim + 1, sizeof *shape), stride = 1;
    for (int d = like->ndim; d-- > 0; stride *= shape[d]) {
        shape[d] = like->shape[d];
        shape[like->ndim + d] = stride;
    }
    managed->version.major = DLPACK_MAJOR;
    managed->deleter = release;
    managed->dl_tensor = *like;
    managed->dl_tensor.shape = shape;
    managed->dl_tensor.strides = shape + like->ndim;
    managed->dl_tensor.data = malloc(stride * sizeof(float) + 1);
    return *out = managed, 0;
}

static int object_from_managed(DLManagedTensorVersioned *managed, void **object) {
    Tensor *tensor = (Tensor *)type.tp_alloc(&type, 0);
    tensor->managed = managed;
    tensor->pointer = (uintptr_t)managed->dl_tensor.data;
    return *object = tensor, 0;
}

static int tensor_from_object(void *object, DLTensor *view) {
    return *view = ((Tensor *)object)->managed->dl_tensor, 0;
}

static int current_stream(int32_t device, int32_t id, void **found) { return *found = stream, 0; }

static const DLPackExchangeAPI api = {
    .version = {DLPACK_MAJOR, 0},
    .allocate = allocate,
    .object_from_managed = object_from_managed,
    .tensor_from_object = tensor_from_object,
    .current_stream = current_stream,
};

/* Tensor(device, *shape) */
static PyObject *make(PyTypeObject *of, PyObject *args, PyObject *kwargs) {
    int64_t shape[8];
    int n = (int)PyTuple_GET_SIZE(args) - 1;
    for (int d = 0; d < n; d++)
        shape[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(args, d + 1));
    DLTensor like = {.device = {DLPACK_CUDA, (int)PyLong_AsLong(PyTuple_GET_ITEM(args, 0))},
                     .ndim = n,
                     .dtype = {DLPACK_FLOAT, 32, 1},
                     .shape = shape};
    DLManagedTensorVersioned *managed;
    void *object;
    allocate(&like, &managed, NULL, NULL);
    object_from_managed(managed, &object);
    return object;
}

static void drop(PyObject *object) {
    release(((Tensor *)object)->managed);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *no(PyObject *self, PyObject *nothing) { Py_RETURN_FALSE; }
static PyObject *get_no(PyObject *self, void *nothing) { Py_RETURN_FALSE; }
static PyObject *work_on(PyObject *self, PyObject *handle) {
    stream = PyLong_AsVoidPtr(handle);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"is_neg", no, METH_NOARGS}, {"is_inference", no, METH_NOARGS}, {NULL}};
static PyGetSetDef getters[] = {{"requires_grad", get_no}, {NULL}};
static PyMemberDef members[] = {
    {"pointer", T_ULONGLONG, offsetof(Tensor, pointer), READONLY}, {NULL}};
static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tensors.Tensor",
    .tp_basicsize = sizeof(Tensor),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make,
    .tp_dealloc = drop,
    .tp_methods = methods,
    .tp_getset = getters,
    .tp_members = members,
};
static PyMethodDef functions[] = {{"work_on", work_on, METH_O}, {NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "tensors", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_tensors(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module || PyModule_AddType(module, &type) ||
        PyModule_AddObject(module, "exchange",
                           PyCapsule_New((void *)&api, "dlpack_exchange_api", NULL)))
        return NULL;
    return module;
}
