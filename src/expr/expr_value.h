/*
 * The values of an evaluation: those of a JSON document, with Java's types, and those that the
 * expression makes. A value is small and is copied; its text, items and pairs lie in the document,
 * in the expression or in the arena of the evaluation, and live as long as those.
 */
#ifndef IDEM_EXPR_EXPR_VALUE_H
#define IDEM_EXPR_EXPR_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "expr/expr_error.h"
#include "json/json.h"

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
 * The remaining budget of an evaluation. `strict` is set for keys: see expr_key.c.
 */
struct idem_work {
    struct idem_arena *arena;
    uint64_t steps;
    uint16_t depth; /* of the lists and maps being processed, nested in each other */
    bool strict;
};

#define IDEM_VALUE_DEPTH_MAX 512

/* Spends steps; false if too few are left. */
static inline bool idem_work_spend(struct idem_work *work, size_t steps) {
    if (work->steps < steps)
        return false;
    work->steps -= steps;
    return true;
}

/* Functions that return an int return 0 or an enum idem_trouble. Recursion into nested lists and
   maps ends at IDEM_VALUE_DEPTH_MAX. */

/* Allocates in the evaluation's arena; NULL on failure, whose cause idem_work_trouble() returns. */
void *idem_work_alloc(struct idem_work *work, size_t size);
static inline int idem_work_trouble(const struct idem_work *work, size_t size) {
    return idem_arena_spent(work->arena, size) ? IDEM_TROUBLE_SPACE : IDEM_TROUBLE_MEMORY;
}

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

#endif
