/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas in sizes: shapes of results, what a call requires, which region has its sizes.
 * tcsym/runtime/formulas.py writes the steps; the operations have the same numbers there. */
#include "native.h"

Words tcsym_words(PyObject *bytes) {
    const int64_t *start = (const int64_t *)PyBytes_AS_STRING(bytes);
    return (Words){start, start + PyBytes_GET_SIZE(bytes) / sizeof *start};
}

const int64_t *tcsym_take(Words *words, int64_t n) {
    const int64_t *taken = words->next;
    if (n < 0 || n > words->end - taken) {
        PyErr_SetString(PyExc_ValueError, "too few words");
        return NULL;
    }
    words->next += n;
    return taken;
}

enum {
    ADD,
    MULTIPLY,
    QUOTIENT,
    REMAINDER,
    LEAST,
    GREATEST,
    CHOOSE,
    NON_NEGATIVE,
    IS_ZERO,
    NOT,
    AND,
    OR,
    REQUIRE,
};

/* floor(a / b), 0 where b is 0. False on overflow. */
static bool quotient(int64_t a, int64_t b, int64_t *result) {
    if (b == -1)
        return !__builtin_sub_overflow((int64_t)0, a, result);
    int64_t rounded = b ? a / b : 0;
    *result = b && a % b && (a ^ b) < 0 ? rounded - 1 : rounded;
    return true;
}

/* a - b * floor(a / b), 0 where b is 0. */
static int64_t remainder_of(int64_t a, int64_t b) {
    if (b == 0 || b == -1)
        return 0;
    int64_t rest = a % b;
    return rest && (rest ^ b) < 0 ? rest + b : rest;
}

bool tcsym_evaluate(const Step *steps, int64_t n_steps, int64_t *values) {
    for (const Step *step = steps; step < steps + n_steps; step++) {
        int64_t a = values[step->a], b = values[step->b], *to = values + step->to;
        bool fits = true;
        switch (step->operation) {
        case ADD: fits = !__builtin_add_overflow(a, b, to); break;
        case MULTIPLY: fits = !__builtin_mul_overflow(a, b, to); break;
        case QUOTIENT: fits = quotient(a, b, to); break;
        case REMAINDER: *to = remainder_of(a, b); break;
        case LEAST: *to = a < b ? a : b; break;
        case GREATEST: *to = a > b ? a : b; break;
        case CHOOSE: *to = a ? b : values[step->c]; break;
        case NON_NEGATIVE: *to = a >= 0; break;
        case IS_ZERO: *to = a == 0; break;
        case NOT: *to = !a; break;
        case AND: *to = a && b; break;
        case OR: *to = a || b; break;
        case REQUIRE: fits = a != 0; break;
        default: fits = false;
        }
        if (!fits)
            return false;
    }
    return true;
}
