/*
 * Fingerprints: one SHA-256. Behind the content of each part stand its length, its
 * kind, its name and the length of that: whoever reads it from its end knows where
 * each part begins, so that no content can run into its neighbours, and none needs to
 * be in memory.
 *
 * Names and kinds are the user's own configuration: a checksum tells them apart.
 */
#include "core/print.h"

#include <string.h>

#include "core/error.h"

/* A document needs some times its size in memory: [0,0,...] the most. */
#define JSON_ROOM 24
#define JSON_ROOM_MIN ((size_t)64 << 10)

/* FNV-1a */
#define FNV_BASIS 0x811c9dc5u
#define FNV_PRIME 0x01000193u

#define WHOLE_MAX 512

void idem_print_begin(struct idem_print *print) {
    static const char tag[] = "idem fingerprint 2";

    *print = (struct idem_print){.definition = FNV_BASIS};
    idem_sha_begin(&print->parts);
    idem_sha_add(&print->parts, tag, sizeof(tag));
}

int idem_print_end(struct idem_print *print, struct idem_fingerprint *ret) {
    unsigned char parts[IDEM_HASH_LEN];
    int rc = idem_sha_end(&print->parts, parts);

    if (print->failed != 0)
        rc = print->failed;
    if (rc != 0)
        return rc;
    memcpy(ret->hash, parts, IDEM_HASH_LEN);
    ret->definition = (print->definition | IDEM_DEFINITION_COMPUTED) & ~IDEM_DEFINITION_RAW;
    if (print->raw)
        ret->definition |= IDEM_DEFINITION_RAW;
    return 0;
}

/* A part that was refused spoils the whole. */
static int refused(struct idem_print *print, int rc) {
    if (print->failed == 0)
        print->failed = rc;
    return rc;
}

static void define(struct idem_print *print, const void *bytes, size_t len) {
    const unsigned char *at = bytes;

    for (size_t i = 0; i < len; i++)
        print->definition = (print->definition ^ at[i]) * FNV_PRIME;
}

static void put(unsigned char *out, uint64_t number, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, number >>= 8)
        out[i] = (unsigned char)number;
}

void idem_print_number(struct idem_print *print, uint32_t number) {
    unsigned char bytes[4];

    put(bytes, number, 4);
    define(print, bytes, sizeof(bytes));
}

/* `wanted` is what the definition has it as. */
static void part_open(struct idem_print *print, const char *name, enum idem_print_kind kind,
                      enum idem_print_kind wanted) {
    unsigned char tail[5] = {(unsigned char)wanted};
    size_t len = strlen(name);

    put(tail + 1, len, 4);
    define(print, name, len);
    define(print, tail, sizeof(tail));
    print->name = name;
    print->kind = kind;
    print->len = print->piece = 0;
}

void idem_print_open(struct idem_print *print, const char *name, enum idem_print_kind kind) {
    part_open(print, name, kind, kind);
}

void idem_print_open_plain(struct idem_print *print, const char *name) {
    part_open(print, name, IDEM_PRINT_BYTES, IDEM_PRINT_JSON);
}

void idem_print_open_pieces(struct idem_print *print, const char *name) {
    part_open(print, name, IDEM_PRINT_PIECES, IDEM_PRINT_JSON);
}

void idem_print_add(struct idem_print *print, const void *bytes, size_t len) {
    idem_sha_add(&print->parts, bytes, len);
    print->len += len;
}

/* Its length stands behind it, as a part's does. */
void idem_print_piece_end(struct idem_print *print) {
    unsigned char len[8];

    put(len, print->len - print->piece, 8);
    idem_print_add(print, len, sizeof(len));
    print->piece = print->len;
}

/* Puts a part together from its content and the bytes behind it, where they are few: hashing many
   small pieces takes longer than hashing their sum. */
struct whole {
    struct idem_print *print;
    size_t len;
    unsigned char bytes[WHOLE_MAX];
};

static void whole_flush(struct whole *whole) {
    idem_sha_add(&whole->print->parts, whole->bytes, whole->len);
    whole->len = 0;
}

static void whole_add(struct whole *whole, const void *bytes, size_t len) {
    if (len > WHOLE_MAX - whole->len)
        whole_flush(whole);
    if (len > WHOLE_MAX) {
        idem_sha_add(&whole->print->parts, bytes, len);
    } else if (len > 0) {
        memcpy(whole->bytes + whole->len, bytes, len);
        whole->len += len;
    }
}

static void whole_close(struct whole *whole) {
    const struct idem_print *print = whole->print;
    unsigned char head[9], tail[4];
    size_t len = strlen(print->name);

    put(head, print->len, 8);
    head[8] = (unsigned char)print->kind;
    put(tail, len, 4);
    whole_add(whole, head, sizeof(head));
    whole_add(whole, print->name, len);
    whole_add(whole, tail, sizeof(tail));
    whole_flush(whole);
}

void idem_print_close(struct idem_print *print) {
    struct whole whole;

    whole.print = print;
    whole.len = 0;
    whole_close(&whole);
}

void idem_print_hashed(struct idem_print *print, const char *name,
                       const unsigned char hash[IDEM_HASH_LEN]) {
    part_open(print, name, IDEM_PRINT_HASH, IDEM_PRINT_JSON);
    idem_print_add(print, hash, IDEM_HASH_LEN);
    idem_print_close(print);
}

void idem_print_unread(struct idem_print *print, const char *name,
                       const unsigned char hash[IDEM_HASH_LEN]) {
    print->raw = true;
    idem_print_hashed(print, name, hash);
}

void idem_print_bytes(struct idem_print *print, const char *name, const void *bytes, size_t len) {
    struct whole whole;

    whole.print = print;
    whole.len = 0;
    idem_print_open(print, name, IDEM_PRINT_BYTES);
    print->len = len;
    whole_add(&whole, bytes, len);
    whole_close(&whole);
}

static int canon_add(void *data, const char *bytes, size_t len) {
    idem_print_add(data, bytes, len);
    return 0;
}

int idem_print_json(struct idem_print *print, const char *name, enum idem_print_kind kind,
                    const struct idem_json *value, struct idem_error *err) {
    int rc;

    idem_print_open(print, name, kind);
    rc = idem_json_canon_exact(value, canon_add, print, err);
    idem_print_close(print);
    return refused(print, rc);
}

void idem_print_arena(struct idem_arena *arena, size_t len) {
    idem_arena_init(arena, JSON_ROOM_MIN + JSON_ROOM * len);
}

int idem_print_body(struct idem_print *print, const char *name, bool json, size_t json_max,
                    const void *bytes, size_t len, struct idem_error *err) {
    struct idem_arena arena;
    struct idem_json value;
    int rc;

    if (!json) {
        idem_print_bytes(print, name, bytes, len);
        return 0;
    }
    if (len > json_max) {
        print->raw = true;
        part_open(print, name, IDEM_PRINT_BYTES, IDEM_PRINT_JSON);
        idem_print_add(print, bytes, len);
        idem_print_close(print);
        return 0;
    }
    idem_print_arena(&arena, len);
    rc = idem_json_parse(bytes, len, &arena, &value, err);
    if (rc == 0)
        rc = idem_print_json(print, name, IDEM_PRINT_JSON, &value, err);
    idem_arena_free(&arena);
    return refused(print, rc);
}
