/*
 * Keys and fingerprints: an expression over a document, parse included and not;
 * and the canonical form with its hash beside plain SHA-256 and plain parsing.
 *
 *     bench-keys eval                 CPU time of an evaluation
 *     bench-keys count NAME TIMES     runs one function this often, for callgrind
 *     bench-keys body [NAME]          MB/s of CPU time, over several kinds of document
 *
 * CPU time and not wall time; rounds alternate between the sides, and the medians
 * are printed, because machines are noisy.
 */
#include <err.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/fingerprint.h"
#include "expr/expr.h"

#define ROUNDS 31
#define ROOM ((size_t)64 << 20)

static double cpu_s(void) {
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof(*values), compare);
    return values[n / 2];
}

/* Documents. The same bytes in every run: random numbers begin anew in each. */

struct document {
    const char *name;
    void (*fill)(struct document *doc, size_t size);
    size_t size;
    char *text;
    size_t len, cap;
    struct idem_arena arena;
    struct idem_json value;
};

static uint64_t random_state;

static uint64_t random_next(void) {
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t z = random_state;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static unsigned below(unsigned n) {
    return (unsigned)(random_next() % n);
}

__attribute__((format(printf, 2, 3))) static void add(struct document *doc, const char *format,
                                                      ...) {
    va_list args;
    int n;

    if (doc->cap - doc->len < 4096) {
        doc->cap = 2 * doc->cap + 8192;
        doc->text = realloc(doc->text, doc->cap);
        if (doc->text == NULL)
            err(1, "realloc");
    }
    va_start(args, format);
    n = vsnprintf(doc->text + doc->len, doc->cap - doc->len, format, args);
    va_end(args);
    doc->len += (size_t)n;
}

static void add_item(struct document *doc) {
    add(doc, "{\"sku\":\"SKU-%05u\",\"name\":\"Widget, %s\",\"quantity\":%u,\"price\":%u.%02u}",
        below(100000), below(2) ? "large" : "small", 1 + below(9), below(500), below(100));
}

/* The members that the expression reads stand first, as in usual documents. */
static void fill_request(struct document *doc, size_t size) {
    add(doc, "{\"user\":{\"id\":4711,\"name\":\"Ada Lovelace\",\"vip\":true},\"order\":{\"id\":"
             "\"A-2024-000123\",\"currency\":\"EUR\",\"total\":199.90,\"items\":[");
    do {
        if (doc->text[doc->len - 1] != '[')
            add(doc, ",");
        add_item(doc);
    } while (doc->len + 60 < size);
    add(doc, "]}}");
}

static void fill_orders(struct document *doc, size_t size) {
    add(doc, "[");
    while (doc->len < size) {
        add(doc,
            "%s\n  {\"id\": %llu, \"customer\": {\"id\": %u, \"name\": \"J\u00fcrgen "
            "M\u00fcller\", "
            "\"email\": \"j.mueller@example.com\"}, \"created\": \"2024-03-%02uT12:34:56Z\", "
            "\"currency\": \"EUR\", \"total\": %u.%02u, \"paid\": %s, \"note\": null, \"items\": [",
            doc->len == 1 ? "" : ",", 1810966706881941507ull + below(1000000), below(100000),
            1 + below(28), below(1000), below(100), below(2) ? "true" : "false");
        for (unsigned i = 0, n = 1 + below(4); i < n; i++) {
            add(doc, "%s", i == 0 ? "" : ", ");
            add_item(doc);
        }
        add(doc, "]}");
    }
    add(doc, "\n]");
}

static void fill_numbers(struct document *doc, size_t size) {
    add(doc, "[");
    while (doc->len < size) {
        add(doc, "%s", doc->len == 1 ? "" : ",");
        switch (below(6)) {
        case 0:
            add(doc, "%u", below(1000000));
            break;
        case 1:
            add(doc, "-%u.%02u", below(10000), below(100));
            break;
        case 2:
            add(doc, "%u.%06u", below(90), below(1000000));
            break;
        case 3:
            add(doc, "%u.%ue%d", 1 + below(9), below(1000000), (int)below(40) - 20);
            break;
        case 4:
            add(doc, "%llu", (unsigned long long)(random_next() >> 1));
            break;
        default:
            add(doc, "%u.0", below(100000));
        }
    }
    add(doc, "]");
}

/* As a program prints a number that it has calculated. */
static void fill_doubles(struct document *doc, size_t size) {
    add(doc, "[");
    while (doc->len < size)
        add(doc, "%s%.17g", doc->len == 1 ? "" : ",",
            (double)(random_next() >> 11) / 9007199254740992.0 * (below(2) ? 1 : 180));
    add(doc, "]");
}

static void fill_text(struct document *doc, size_t size) {
    add(doc, "[");
    while (doc->len < size)
        add(doc,
            "%s\"The quick brown fox jumps over the lazy dog, and over its neighbour's fence, and "
            "is not seen again until the %u. of the month.\"",
            doc->len == 1 ? "" : ",", below(31));
    add(doc, "]");
}

static void fill_escapes(struct document *doc, size_t size) {
    static const char *const pieces[] = {
        "\\n",     "\\t",    "\\\"",         "\\\\",       "\\/",   "\\u00e9",   "\\ud83d\\ude00",
        "\\u001f", "\u00fc", "\u4e2d\u6587", "\U0001f600", " and ", "some text", "\\u0041",
    };

    add(doc, "[");
    while (doc->len < size) {
        add(doc, "%s\"", doc->len == 1 ? "" : ",");
        for (unsigned i = 0, n = 4 + below(12); i < n; i++)
            add(doc, "%s%s", pieces[below(sizeof(pieces) / sizeof(pieces[0]))],
                below(2) ? "words between" : "");
        add(doc, "\"");
    }
    add(doc, "]");
}

static void fill_nested(struct document *doc, size_t size) {
    add(doc, "[");
    while (doc->len < size) {
        add(doc, "%s", doc->len == 1 ? "" : ",");
        for (unsigned i = 0; i < 120; i++)
            add(doc, i % 2 ? "[" : "{\"b\":1,\"a\":");
        for (unsigned i = 120; i-- > 0;)
            add(doc, i % 2 ? "]" : "}");
    }
    add(doc, "]");
}

static void fill_members(struct document *doc, size_t size) {
    add(doc, "{");
    for (unsigned i = 0; doc->len < size; i++)
        add(doc, "%s\"field_%08x\":%u", i == 0 ? "" : ",", i * 2654435761u, below(100));
    add(doc, "}");
}

static void arena_make(struct idem_arena *arena) {
    idem_arena_init(arena, ROOM);
}

static void parse_into(struct document *doc, struct idem_arena *arena, struct idem_json *ret) {
    struct idem_error error;

    if (idem_json_parse(doc->text, doc->len, arena, ret, &error) != 0)
        errx(1, "%s: %s", doc->name, error.text);
}

static void document_make(struct document *doc) {
    random_state = 1;
    doc->fill(doc, doc->size);
    arena_make(&doc->arena);
    parse_into(doc, &doc->arena, &doc->value);
}

/* Evaluation. Each function is one turn; callgrind counts inside of it, so it must stay a
 * function with a name. */

#define EXPRESSION "'user:' + #user.id + ':order:' + #order.id"
#define WANTED "user:4711:order:A-2024-000123"

static struct idem_expr *expr;
static struct idem_arena work;
static struct document requests[] = {{.name = "200", .fill = fill_request, .size = 200},
                                     {.name = "20k", .fill = fill_request, .size = 20480}};
static const char *key;
static size_t key_len;

void bench_key(struct document *doc);
void bench_value(struct document *doc);
void bench_parse(struct document *doc);
void bench_parse_key(struct document *doc);

__attribute__((noinline)) void bench_key(struct document *doc) {
    idem_arena_reset(&work, ROOM);
    if (idem_expr_key(expr, &doc->value, &work, &key, &key_len, NULL) != 0)
        errx(1, "no key");
}

__attribute__((noinline)) void bench_value(struct document *doc) {
    struct idem_value value;

    idem_arena_reset(&work, ROOM);
    if (idem_expr_eval(expr, &doc->value, &work, &value, NULL) != 0 ||
        idem_value_print(&value, &work, &key, &key_len, NULL) != 0)
        errx(1, "no value");
}

__attribute__((noinline)) void bench_parse(struct document *doc) {
    struct idem_json value;

    idem_arena_reset(&work, ROOM);
    parse_into(doc, &work, &value);
}

__attribute__((noinline)) void bench_parse_key(struct document *doc) {
    struct idem_json value;

    idem_arena_reset(&work, ROOM);
    parse_into(doc, &work, &value);
    if (idem_expr_key(expr, &value, &work, &key, &key_len, NULL) != 0)
        errx(1, "no key");
}

static const struct turn {
    const char *name;
    void (*run)(struct document *doc);
    long times; /* in a round, over the small document */
} turns[] = {
    {"bench_key", bench_key, 20000},
    {"bench_value", bench_value, 20000},
    {"bench_parse", bench_parse, 10000},
    {"bench_parse_key", bench_parse_key, 10000},
};
#define TURNS (sizeof(turns) / sizeof(turns[0]))
#define REQUESTS (sizeof(requests) / sizeof(requests[0]))

static void eval_init(void) {
    struct idem_error error;

    if (idem_expr_compile(EXPRESSION, strlen(EXPRESSION), IDEM_EXPR_KEY, &expr, &error) != 0)
        errx(1, "%s", error.text);
    arena_make(&work);
    for (size_t i = 0; i < REQUESTS; i++) {
        document_make(&requests[i]);
        bench_parse_key(&requests[i]);
        if (key_len != strlen(WANTED) || memcmp(key, WANTED, key_len) != 0)
            errx(1, "the key is %.*s", (int)key_len, key);
    }
}

static double turn_ns(const struct turn *turn, struct document *doc) {
    bool parses = turn->run == bench_parse || turn->run == bench_parse_key;
    long times = parses && doc->size > 1000 ? turn->times / 50 : turn->times;
    double begun = cpu_s();

    for (long i = 0; i < times; i++)
        turn->run(doc);
    return (cpu_s() - begun) / (double)times * 1e9;
}

static void eval_print(void) {
    for (size_t i = 0; i < REQUESTS; i++) {
        double ns[TURNS][ROUNDS], middle[TURNS];

        for (int round = 0; round < ROUNDS; round++)
            for (size_t t = 0; t < TURNS; t++)
                ns[t][round] = turn_ns(&turns[t], &requests[i]);
        for (size_t t = 0; t < TURNS; t++)
            middle[t] = median(ns[t], ROUNDS);
        printf("%8zu %12.0f %12.0f %12.0f %12.0f\n", requests[i].len, middle[0], middle[1],
               middle[2], middle[3]);
    }
}

/* NAME is that of a turn, then a dot and that of a document: bench_key.200 */
static void count_run(const char *name, long times) {
    for (size_t t = 0; t < TURNS; t++)
        for (size_t i = 0; i < REQUESTS; i++) {
            char full[64];

            snprintf(full, sizeof(full), "%s.%s", turns[t].name, requests[i].name);
            if (strcmp(full, name) != 0)
                continue;
            for (long k = 0; k < times; k++)
                turns[t].run(&requests[i]);
            return;
        }
    errx(64, "there is nothing of that name: %s", name);
}

/* Bodies. */

#define BODY 65536

static struct document bodies[] = {
    {.name = "orders", .fill = fill_orders, .size = BODY},
    {.name = "numbers", .fill = fill_numbers, .size = BODY},
    {.name = "17 digits", .fill = fill_doubles, .size = BODY},
    {.name = "plain text", .fill = fill_text, .size = BODY},
    {.name = "escapes", .fill = fill_escapes, .size = BODY},
    {.name = "120 deep", .fill = fill_nested, .size = BODY},
    {.name = "many members", .fill = fill_members, .size = BODY},
};
#define BODIES (sizeof(bodies) / sizeof(bodies[0]))

static unsigned char hash[IDEM_HASH_LEN];

static void do_sha(struct document *doc) {
    (void)idem_sha256((struct idem_bytes){(const unsigned char *)doc->text, doc->len}, hash);
}

static void do_parse(struct document *doc) {
    struct idem_arena arena;
    struct idem_json value;

    arena_make(&arena);
    parse_into(doc, &arena, &value);
    idem_arena_free(&arena);
}

static int nowhere(void *data, const char *bytes, size_t len) {
    (void)bytes;
    *(size_t *)data += len;
    return 0;
}

static void do_canon(struct document *doc) {
    size_t len = 0;

    if (idem_json_canon(&doc->value, nowhere, &len, NULL) != 0)
        errx(1, "no canonical form");
}

static void print_finish(struct idem_fingerprint_hash *print) {
    struct idem_fingerprint fingerprint;

    if (idem_fingerprint_end(print, &fingerprint) != 0)
        errx(1, "no fingerprint");
    memcpy(hash, fingerprint.hash, sizeof(hash));
}

static void do_canon_hash(struct document *doc) {
    struct idem_fingerprint_hash print;

    idem_fingerprint_begin(&print);
    if (idem_fingerprint_json(&print, "body", IDEM_FINGERPRINT_JSON, &doc->value, NULL) != 0)
        errx(1, "no canonical form");
    print_finish(&print);
}

static void do_all(struct document *doc) {
    struct idem_fingerprint_hash print;

    idem_fingerprint_begin(&print);
    if (idem_fingerprint_body(&print, "body", true, SIZE_MAX, doc->text, doc->len, NULL) != 0)
        errx(1, "no canonical form");
    print_finish(&print);
}

enum { SHA, PARSE, CANON, CANON_HASH, ALL, WORKS };
static void (*const works[WORKS])(struct document *doc) = {do_sha, do_parse, do_canon,
                                                           do_canon_hash, do_all};

#define REPEAT 16

static double work_s(void (*run)(struct document *doc), struct document *doc) {
    double begun = cpu_s();

    for (int i = 0; i < REPEAT; i++)
        run(doc);
    return (cpu_s() - begun) / REPEAT;
}

static void body_print(struct document *doc) {
    double seconds[WORKS][ROUNDS], part[ROUNDS], whole[ROUNDS], mbs[WORKS];

    document_make(doc);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WORKS; i++)
            seconds[i][round] = work_s(works[i], doc);
        part[round] = seconds[PARSE][round] / seconds[CANON_HASH][round];
        whole[round] = seconds[PARSE][round] / seconds[ALL][round];
    }
    for (int i = 0; i < WORKS; i++)
        mbs[i] = (double)doc->len / 1e6 / median(seconds[i], ROUNDS);
    printf("%-14s %7.0f %7.0f %7.0f %11.0f %17.0f %9.2f %9.2f\n", doc->name, mbs[SHA], mbs[PARSE],
           mbs[CANON], mbs[CANON_HASH], mbs[ALL], median(part, ROUNDS), median(whole, ROUNDS));
    fflush(stdout);
}

int main(int argc, char **argv) {
    /* Keeps freed memory, because the benchmark is not about the kernel's pages. */
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
    mallopt(M_MMAP_THRESHOLD, 512 << 20);
    if (argc == 2 && strcmp(argv[1], "eval") == 0) {
        eval_init();
        eval_print();
    } else if (argc == 4 && strcmp(argv[1], "count") == 0) {
        eval_init();
        count_run(argv[2], strtol(argv[3], NULL, 10));
    } else if ((argc == 2 || argc == 3) && strcmp(argv[1], "body") == 0) {
        for (size_t i = 0; i < BODIES; i++)
            if (argc == 2 || strcmp(argv[2], bodies[i].name) == 0)
                body_print(&bodies[i]);
    } else {
        errx(64, "usage: bench-keys eval | count NAME TIMES | body [NAME]");
    }
    return 0;
}
