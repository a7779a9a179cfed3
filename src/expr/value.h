/*
 * What an expression works on: a JSON document seen with Java's types, and what
 * the expression makes of it. A value is small and is copied; its text, items
 * and pairs lie in the document, in the expression or in the arena of the
 * evaluation, and live as long as those.
 */
#ifndef IDEM_EXPR_VALUE_H
#define IDEM_EXPR_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "expr/trouble.h"
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
    IDEM_VALUE_ENTRY, /* of a map: what #this is in a projection of one */
};

/* Flags. */
#define IDEM_VALUE_ASCII 1 /* text: known to be nothing else */
#define IDEM_VALUE_MADE 2  /* text: written or put together by the expression, not data alone */
#define IDEM_VALUE_JSON 4  /* list, map: the document's own, in at.json */
#define IDEM_VALUE_LOOSE 8 /* map: a Java HashMap, in an order that is not known here */

struct idem_value {
    uint8_t type;
    uint8_t flags;
    uint32_t n; /* bytes of text, items or pairs */
    union {
        bool flag;
        int64_t integer; /* INT and LONG */
        double real;
        float single;
        const char *text; /* BIG, CHAR and STRING; not NUL-terminated */
        const struct idem_json *json;
        const struct idem_value *items;
        const struct idem_pair *pairs; /* MAP, and the one of an ENTRY */
    } at;
};

struct idem_pair {
    struct idem_value key, value;
};

#define IDEM_VALUE_NONE ((struct idem_value){.type = IDEM_VALUE_NULL})

/*
 * What an evaluation may still spend. `strict` is set for keys: see key.c.
 */
struct idem_work {
    struct idem_arena *arena;
    uint64_t steps;
    uint16_t depth; /* of the lists and maps that are just gone into */
    bool strict;
};

#define IDEM_VALUE_DEPTH_MAX 512

/* A step less; false when there is none left. */
static inline bool idem_work_spend(struct idem_work *work, size_t steps) {
    if (work->steps < steps)
        return false;
    work->steps -= steps;
    return true;
}

/* Functions that return an int answer 0 or an enum idem_trouble. What recurses does
   so for lists and maps in one another, up to IDEM_VALUE_DEPTH_MAX. */

/* Memory of the evaluation's arena, or NULL; why it was NULL. */
void *idem_work_alloc(struct idem_work *work, size_t size);
static inline int idem_work_trouble(const struct idem_work *work, size_t size) {
    return idem_arena_spent(work->arena, size) ? IDEM_TROUBLE_SPACE : IDEM_TROUBLE_MEMORY;
}

/* The document's value as Java has it: Integer, Long, BigInteger or Double by how it is written. */
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

/* The item, or the pair, at a place that is within. */
int idem_value_item(struct idem_work *work, const struct idem_value *list, uint32_t i,
                    struct idem_value *ret);
int idem_value_pair(struct idem_work *work, const struct idem_value *map, uint32_t i,
                    struct idem_pair *ret);
/* *found says whether the map has the key; *ret is null if not. */
int idem_value_get(struct idem_work *work, const struct idem_value *map,
                   const struct idem_value *key, bool *found, struct idem_value *ret);

/* Java's equals(): 1 is neither 1L nor 1.0. */
int idem_value_equals(struct idem_work *work, const struct idem_value *a,
                      const struct idem_value *b, bool *ret);
/* Java's hashCode(). */
int idem_value_hash(struct idem_work *work, const struct idem_value *v, uint32_t *ret);

/* Conversions of Spring's service, as far as they are certain. */
int idem_value_truth(struct idem_work *work, const struct idem_value *v, bool *ret);
int idem_value_index(const struct idem_value *v, int32_t *ret);

double idem_value_double(const struct idem_value *v);
float idem_value_float(const struct idem_value *v);
/* Java's casts: toward zero, held at the ends, and 0 for what is no number. */
int64_t idem_double_long(double d);
int32_t idem_double_int(double d);

#endif
