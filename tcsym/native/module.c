/* SPDX-License-Identifier: Apache-2.0 */
/* The extension module `tcsym.runtime._native`: what calls of kernels enter, and what runs them. */
#define TCSYM_IMPORTS_NUMPY
#include "native.h"

static PyMethodDef functions[] = {
    {"launch", tcsym_launch_kernel, METH_VARARGS,
     "launch(kernel, buffers, sizes, arena, shared_bytes, private_bytes, threads, pool): runs it."},
    {"set_exchange", tcsym_set_exchange, METH_VARARGS,
     "set_exchange(capsule, type, type, is_grad_enabled, increment_version, forward_ad, busy)"},
    {"set_described", tcsym_set_described, METH_VARARGS,
     "set_described(make, attribute): who makes arrays beside others, what tells pointers' devices."},
    {"describe", tcsym_describe, METH_VARARGS,
     "describe(type, has_interface): whether its arrays are read from now on, else by DLPack."},
    {"large_array", tcsym_large_array, METH_VARARGS,
     "large_array(shape, dtype): an array over a block; None if it is not large."},
    {"set_idle_memory", tcsym_set_idle_memory, METH_O, "Most bytes of blocks kept for later."},
    {"idle_memory", tcsym_idle_memory, METH_NOARGS, "Bytes and number of the blocks that are kept."},
    {"read_capsule", tcsym_read_capsule, METH_O,
     "read_capsule(capsule): (pointer, shape, strides, type, writable) of the tensor it now owns."},
    {"make_capsule", tcsym_make_capsule, METH_VARARGS,
     "make_capsule(owner, pointer, shape, type, device type, device, versioned): of dense memory."},
    {"simt_report", tcsym_simt_report, METH_NOARGS,
     "What a grid on the host found to be wrong, of the last one of this thread that failed."},
    {"missing_of_driver", tcsym_missing_of_driver, METH_NOARGS,
     "missing_of_driver(): what CUDA's driver lacks, or None."},
    {"simt_check", tcsym_simt_check, METH_O,
     "simt_check(whether): grids on the host run in two orders, and note who touches memory."},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tcsym.runtime._native",
    .m_doc = "What calls of kernels enter, and what runs them.",
    .m_size = -1,
    .m_methods = functions,
};

static bool add_address(PyObject *module, const char *name, void *address) {
    return !PyModule_AddObject(module, name, PyLong_FromVoidPtr(address));
}

PyMODINIT_FUNC PyInit__native(void) {
    import_array();
    PyTypeObject *types[] = {&tcsym_Entry, &tcsym_Switch, &tcsym_Arena, &tcsym_Pool,
                             &tcsym_Grids, &tcsym_Chain};
    PyObject *module = PyModule_Create(&definition);
    if (!module || !tcsym_make_handler())
        return NULL;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (PyModule_AddType(module, types[k]))
            return NULL;
    if (!add_address(module, "parallel_for", tcsym_parallel_for) ||
        !add_address(module, "missing_task", tcsym_missing_task) ||
        !add_address(module, "mark", tcsym_mark) ||
        !add_address(module, "simt_grid", tcsym_simt_grid) ||
        !add_address(module, "simt_barrier", tcsym_simt_barrier) ||
        !add_address(module, "simt_blocks", tcsym_simt_blocks) ||
        !add_address(module, "simt_grid_barrier", tcsym_simt_grid_barrier) ||
        !add_address(module, "simt_shuffle", tcsym_simt_shuffle) ||
        !add_address(module, "simt_touch", tcsym_simt_touch) ||
        !add_address(module, "simt_global", tcsym_simt_global) ||
        !add_address(module, "simt_globals", tcsym_simt_globals) ||
        !add_address(module, "simt_copy", tcsym_simt_copy) ||
        !add_address(module, "simt_commit", tcsym_simt_commit) ||
        !add_address(module, "simt_wait", tcsym_simt_wait) ||
        !add_address(module, "simt_multiply", tcsym_simt_multiply) ||
        PyModule_AddIntConstant(module, "LARGE_BYTES", (long)tcsym_large) ||
        PyModule_AddIntMacro(module, ARENA_BUSY) || PyModule_AddIntMacro(module, OUT_OF_MEMORY) ||
        PyModule_AddIntMacro(module, CODE_MISSING) || PyModule_AddIntMacro(module, SIMT_FAULT) ||
        PyModule_AddIntMacro(module, DRIVER_ERROR) || PyModule_AddIntMacro(module, MOST_ARRAYS))
        return NULL;
    return module;
}
