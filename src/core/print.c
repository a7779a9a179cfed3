/*
 * Fingerprints. A part goes into the whole as the length of its name, its name,
 * its kind and the SHA-256 of its content: whatever the content is, it cannot
 * run into its neighbours, and it need not be in memory.
 */
#include "core/print.h"

#include <string.h>

#include "core/error.h"

/* A document needs some times its size in memory: [0,0,...] the most. */
#define JSON_ROOM 24
#define JSON_ROOM_MIN ((size_t)64 << 10)

void idem_print_begin(struct idem_print *print) {
    static const char parts[] = "idem fingerprint 1", definition[] = "idem definition 1";

    print->part.ctx = NULL;
    print->failed = 0;
    print->raw = false;
    idem_sha_begin(&print->parts);
    idem_sha_add(&print->parts, parts, sizeof(parts));
    idem_sha_begin(&print->definition);
    idem_sha_add(&print->definition, definition, sizeof(definition));
}

int idem_print_end(struct idem_print *print, struct idem_fingerprint *ret) {
    unsigned char parts[IDEM_HASH_LEN], definition[IDEM_HASH_LEN];
    int rc = idem_sha_end(&print->parts, parts);
    int rc2 = idem_sha_end(&print->definition, definition);

    rc = print->failed != 0 ? print->failed : rc != 0 ? rc : rc2;
    if (rc != 0)
        return rc;
    memcpy(ret->hash, parts, IDEM_HASH_LEN);
    ret->definition = (uint32_t)definition[0] << 24 | (uint32_t)definition[1] << 16 |
                      (uint32_t)definition[2] << 8 | definition[3];
    ret->definition = (ret->definition | IDEM_DEFINITION_COMPUTED) & ~IDEM_DEFINITION_RAW;
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

void idem_print_number(struct idem_print *print, uint32_t number) {
    unsigned char bytes[4] = {(unsigned char)(number >> 24), (unsigned char)(number >> 16),
                              (unsigned char)(number >> 8), (unsigned char)number};

    idem_sha_add(&print->definition, bytes, sizeof(bytes));
}

static void name_add(struct idem_sha *sha, const char *name, enum idem_print_kind kind) {
    size_t len = strlen(name);
    unsigned char head[4] = {(unsigned char)(len >> 24), (unsigned char)(len >> 16),
                             (unsigned char)(len >> 8), (unsigned char)len};
    unsigned char tail = (unsigned char)kind;

    idem_sha_add(sha, head, sizeof(head));
    idem_sha_add(sha, name, len);
    idem_sha_add(sha, &tail, 1);
}

/* `wanted` is what the definition has it as. */
static void part_open(struct idem_print *print, const char *name, enum idem_print_kind kind,
                      enum idem_print_kind wanted) {
    name_add(&print->parts, name, kind);
    name_add(&print->definition, name, wanted);
    idem_sha_begin(&print->part);
}

void idem_print_open(struct idem_print *print, const char *name, enum idem_print_kind kind) {
    part_open(print, name, kind, kind);
}

void idem_print_add(struct idem_print *print, const void *bytes, size_t len) {
    idem_sha_add(&print->part, bytes, len);
}

void idem_print_close(struct idem_print *print) {
    unsigned char hash[IDEM_HASH_LEN] = {0};

    if (idem_sha_end(&print->part, hash) != 0)
        idem_sha_fail(&print->parts);
    idem_sha_add(&print->parts, hash, sizeof(hash));
}

void idem_print_bytes(struct idem_print *print, const char *name, const void *bytes, size_t len) {
    idem_print_open(print, name, IDEM_PRINT_BYTES);
    idem_print_add(print, bytes, len);
    idem_print_close(print);
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
