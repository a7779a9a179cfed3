/*
 * The values of an evaluation: those of a JSON document, with Java's types, and those that the
 * expression makes. A value is small and is copied; its text, items and pairs lie in the document,
 * in the expression or in the arena of the evaluation, and live as long as those.
 */
#ifndef IDEM_EXPR_EXPR_VALUE_H
#define IDEM_EXPR_EXPR_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "idem.h"
#include "json/json.h"

/*
 * The errors of an evaluation: one constant each, with its text in expr.c. The caller that
 * knows the place in the expression adds it. No text contains a value of the document, because
 * values may be secret.
 */

enum idem_trouble {
    IDEM_FINE,
    /* Limits. */
    IDEM_TROUBLE_MEMORY,
    IDEM_TROUBLE_SPACE,
    IDEM_TROUBLE_STEPS,
    IDEM_TROUBLE_SIZE,
    IDEM_TROUBLE_DEPTH,
    /* Errors in Java, too. */
    IDEM_TROUBLE_OF_NULL,
    IDEM_TROUBLE_BARE,
    IDEM_TROUBLE_NO_MEMBER,
    IDEM_TROUBLE_NOT_OBJECT,
    IDEM_TROUBLE_CALL_NULL,
    IDEM_TROUBLE_NO_METHOD,
    IDEM_TROUBLE_ARGUMENT,
    IDEM_TROUBLE_RANGE,
    IDEM_TROUBLE_NOT_INDEX,
    IDEM_TROUBLE_NOT_INDEXED,
    IDEM_TROUBLE_INDEX_NULL,
    IDEM_TROUBLE_NOT_LIST,
    IDEM_TROUBLE_CRITERION,
    IDEM_TROUBLE_OPERANDS,
    IDEM_TROUBLE_ORDER,
    IDEM_TROUBLE_TWO_ITEMS,
    IDEM_TROUBLE_ZERO,
    IDEM_TROUBLE_TRUTH,
    IDEM_TROUBLE_TEXT,
    IDEM_TROUBLE_PATTERN,
    /* Refused, because Java's result is not certain. */
    IDEM_TROUBLE_SURROGATE,
    IDEM_TROUBLE_CASE,
    IDEM_TROUBLE_LOOSE,
    IDEM_TROUBLE_BIG,
    IDEM_TROUBLE_POWER,
    IDEM_TROUBLE_ENTRY,
    IDEM_TROUBLE_PATTERN_KIND,
    IDEM_TROUBLE_PATTERN_WORK,
    /* Only for keys. */
    IDEM_TROUBLE_KEY_NULL,
    IDEM_TROUBLE_KEY_OBJECT,
    IDEM_TROUBLE_KEY_LIST,
    IDEM_TROUBLE_KEY_EMPTY,
    IDEM_TROUBLE_KEY_LONG,
    IDEM_TROUBLE_KEY_FINITE,
    IDEM_TROUBLE_KEY_DIGITS,
    IDEM_TROUBLE_KEY_OVERFLOW,
    IDEM_TROUBLE_KEY_EXACT,
    IDEM_TROUBLE_KEY_PRINTED,
    IDEM_TROUBLE_KEY_ORDER,
    IDEM_TROUBLE_SELECT_MAP,
    IDEM_TROUBLE_COUNT,
};

/* Returns the trouble of a call to the caller. */
#define IDEM_TRY(call)                                                                             \
    do {                                                                                           \
        int trouble_ = (call);                                                                     \
        if (trouble_ != 0)                                                                         \
            return trouble_;                                                                       \
    } while (0)

const char *idem_trouble_text(int trouble);
/* The code of struct idem_error for this trouble. */
int idem_trouble_code(int trouble);

/*
 * Fills *err with "column N: what", and under it the part of the expression around byte `pos`, with
 * a caret. Returns `code`.
 */
int idem_expr_report(struct idem_error *err, int code, const char *text, size_t len, size_t pos,
                     const char *what);

enum idem_value_type {
    IDEM_VALUE_NULL,
    IDEM_VALUE_BOOL,
    IDEM_VALUE_INT,
    IDEM_VALUE_LONG,
    IDEM_VALUE_DOUBLE,
    IDEM_VALUE_FLOAT,
    IDEM_VALUE_BIG, /* an integer beyond 64 bits, as its digits */
    IDEM_VALUE_CHAR,
    IDEM_VALUE_STRING,
    IDEM_VALUE_LIST,
    IDEM_VALUE_MAP,
    IDEM_VALUE_ENTRY, /* of a map: the value of #this in a projection of a map */
};

/* Flags. */
#define IDEM_VALUE_ASCII 1 /* text: known to be ASCII */
#define IDEM_VALUE_MADE 2  /* text: a literal or built by the expression, not data alone */
#define IDEM_VALUE_JSON 4  /* list, map: part of the document, in at.json */
#define IDEM_VALUE_LOOSE 8 /* map: a Java HashMap, whose order is not known here */

struct idem_value {
    uint8_t type;
    uint8_t flags;
    uint32_t n; /* bytes of text, items, or pairs */
    union {
        bool flag;
        int64_t integer; /* INT and LONG */
        double real;
        float single;
        const char *text; /* BIG, CHAR and STRING; not NUL-terminated */
        const struct idem_json *json;
        const struct idem_value *items;
        const struct idem_pair *pairs; /* MAP; ENTRY has exactly one */
    } at;
};

struct idem_pair {
    struct idem_value key, value;
};

#define IDEM_VALUE_NONE ((struct idem_value){.type = IDEM_VALUE_NULL})

/*
 * The remaining budget of an evaluation. `strict` is set for keys: see expr.c.
 */
struct idem_work {
    struct idem_arena *arena;
    uint64_t steps;
    uint16_t depth; /* of the lists and maps being processed, nested in each other */
    bool strict;
};

#define IDEM_VALUE_DEPTH_MAX 512

/* The trouble of a call that goes one level deeper into lists and maps. */
#define IDEM_DEEPER(work, call)                                                                    \
    ({                                                                                             \
        int deeper_ = ++(work)->depth <= IDEM_VALUE_DEPTH_MAX ? (call) : (int)IDEM_TROUBLE_DEPTH;  \
        (work)->depth--;                                                                           \
        deeper_;                                                                                   \
    })

static inline int idem_work_spend(struct idem_work *work, size_t steps) {
    if (work->steps < steps)
        return IDEM_TROUBLE_STEPS;
    work->steps -= steps;
    return 0;
}

/* Functions that return an int return 0 or an enum idem_trouble. Recursion into nested lists and
   maps ends at IDEM_VALUE_DEPTH_MAX. */

/* Allocates in the evaluation's arena; NULL on failure, whose cause idem_work_trouble() returns. */
void *idem_work_alloc(struct idem_work *work, size_t size);
static inline int idem_work_trouble(const struct idem_work *work, size_t size) {
    return idem_arena_spent(work->arena, size) ? IDEM_TROUBLE_SPACE : IDEM_TROUBLE_MEMORY;
}
/* Sets `at` to new memory, or returns the trouble to the caller. */
#define IDEM_TRY_ALLOC(work, at, size)                                                             \
    do {                                                                                           \
        (at) = idem_work_alloc(work, size);                                                        \
        if ((at) == NULL)                                                                          \
            return idem_work_trouble(work, size);                                                  \
    } while (0)

/* Converts a value of the document to Java's type: a number becomes Integer, Long, BigInteger or
   Double, depending on how it is written. */
int idem_value_of(struct idem_work *work, const struct idem_json *json, struct idem_value *ret);

static inline bool idem_value_is_number(const struct idem_value *v) {
    return v->type >= IDEM_VALUE_INT && v->type <= IDEM_VALUE_BIG;
}
static inline bool idem_value_is_ascii(const struct idem_value *v) {
    return (v->flags & IDEM_VALUE_ASCII) != 0;
}

struct idem_value idem_value_text(const char *text, size_t len, bool ascii);
struct idem_value idem_value_bool(bool flag);
struct idem_value idem_value_int(int64_t n);

/* The item or pair at index `i`, which must be in range. */
int idem_value_item(struct idem_work *work, const struct idem_value *list, uint32_t i,
                    struct idem_value *ret);
int idem_value_pair(struct idem_work *work, const struct idem_value *map, uint32_t i,
                    struct idem_pair *ret);
/* Sets *found if the map has the key; otherwise *ret is null. */
int idem_value_get(struct idem_work *work, const struct idem_value *map,
                   const struct idem_value *key, bool *found, struct idem_value *ret);

/* Java's equals(): 1 equals neither 1L nor 1.0. */
int idem_value_equals(struct idem_work *work, const struct idem_value *a,
                      const struct idem_value *b, bool *ret);
/* Java's hashCode(). */
int idem_value_hash(struct idem_work *work, const struct idem_value *v, uint32_t *ret);

/* Conversions of Spring's ConversionService, as far as their results are certain. */
int idem_value_truth(struct idem_work *work, const struct idem_value *v, bool *ret);
int idem_value_index(const struct idem_value *v, int32_t *ret);

double idem_value_double(const struct idem_value *v);
float idem_value_float(const struct idem_value *v);
/* Java's casts: round toward zero, saturate at the limits of the type, and turn NaN into 0. */
int64_t idem_double_long(double d);
int32_t idem_double_int(double d);

/*
 * Text is UTF-8 here and UTF-16 in Java: places and lengths are counted in units of 16 bits. Half
 * of a surrogate pair has no UTF-8, so where Java would produce it, the functions return trouble.
 */

/* Java's trim(): the text without blanks and control characters at both ends. */
struct idem_value idem_value_trim(const struct idem_value *text);

/* Java's length(). */
size_t idem_utf16_units(const struct idem_value *text);

/* The byte at which unit `unit` begins. IDEM_TROUBLE_RANGE beyond the end (the end itself is a
   valid place), IDEM_TROUBLE_SURROGATE within a pair. */
int idem_utf16_place(const struct idem_value *text, int64_t unit, size_t *ret);
/* The text between two units. */
int idem_utf16_part(const struct idem_value *text, int64_t from, int64_t to,
                    struct idem_value *ret);

/* Java's compareTo(): the difference of the first units that differ, or of the lengths. */
int32_t idem_utf16_compare(const struct idem_value *a, const struct idem_value *b);

/*
 * The unit at which `part` is first found at or after `from`, or last found at or before it; -1 if
 * it is not found.
 */
int64_t idem_utf16_find(const struct idem_value *text, const struct idem_value *part, int64_t from);
int64_t idem_utf16_find_last(const struct idem_value *text, const struct idem_value *part,
                             int64_t from);

/*
 * Operators on values, with SpEL's rules: numbers are converted to the larger of the two types, int
 * and long wrap around. For keys, an operation that would lose digits is an error instead.
 */

enum idem_expr_op {
    IDEM_EXPR_OP_ADD,
    IDEM_EXPR_OP_SUBTRACT,
    IDEM_EXPR_OP_MULTIPLY,
    IDEM_EXPR_OP_DIVIDE,
    IDEM_EXPR_OP_MODULUS,
    IDEM_EXPR_OP_POWER,
    IDEM_EXPR_OP_EQ,
    IDEM_EXPR_OP_NE,
    IDEM_EXPR_OP_LT,
    IDEM_EXPR_OP_LE,
    IDEM_EXPR_OP_GT,
    IDEM_EXPR_OP_GE,
};

/* ADD to POWER. The evaluator handles a + with a text. */
int idem_op_calculate(struct idem_work *work, enum idem_expr_op op, const struct idem_value *a,
                      const struct idem_value *b, struct idem_value *ret);
int idem_op_negate(struct idem_work *work, const struct idem_value *v, struct idem_value *ret);

/* EQ to GE. */
int idem_op_compare(struct idem_work *work, enum idem_expr_op op, const struct idem_value *a,
                    const struct idem_value *b, bool *ret);
/* Java's compare(), a total order for doubles as well. *ret is -1, 0 or 1. */
int idem_op_order(struct idem_work *work, const struct idem_value *a, const struct idem_value *b,
                  int *ret);

/*
 * Text that grows in the arena of an evaluation, and the three ways to append a value to it.
 */

#define IDEM_EXPR_TEXT_MAX ((size_t)1 << 20) /* bytes of any text */

struct idem_text {
    struct idem_work *work;
    char *at;
    size_t len, cap;
    bool ascii;
};

void idem_text_init(struct idem_text *text, struct idem_work *work);
/* The text as a value; ends the use of the builder. */
struct idem_value idem_text_value(const struct idem_text *text);

int idem_text_put(struct idem_text *text, const char *bytes, size_t len, bool ascii);

/* As String.valueOf() writes it: [1, 2], {a=1}, null. */
int idem_text_java(struct idem_text *text, const struct idem_value *v);
/* As Spring converts it to a String: items of lists joined by commas; no objects. */
int idem_text_convert(struct idem_text *text, const struct idem_value *v);
/* As part of a key: no null, no objects, and a different text for every list. */
int idem_text_key(struct idem_text *text, const struct idem_value *v);

#endif
