/*
 * Fingerprints: one SHA-256. Each part's content is followed by its length, its kind, its name
 * and the length of the name. Read from the end, the bytes show where each part begins: no
 * content can run into its neighbours, and none must be held in memory.
 *
 * Names and kinds are the user's own configuration, so a checksum suffices to distinguish them.
 */
#include "core/fingerprint.h"

#include <string.h>

#include "base/error.h"

/* The parsed tree of a document needs a multiple of its size; [0,0,...] needs the most. */
#define JSON_ROOM 24
#define JSON_ROOM_MIN ((size_t)64 << 10)

/* FNV-1a */
#define FNV_BASIS 0x811c9dc5u
#define FNV_PRIME 0x01000193u

#define PART_BUFFER_MAX 512

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

/* One refused part spoils the whole fingerprint. */
static int fingerprint_fail(struct idem_print *print, int rc) {
    if (print->failed == 0)
        print->failed = rc;
    return rc;
}

static void fingerprint_define(struct idem_print *print, const void *bytes, size_t len) {
    const unsigned char *at = bytes;

    for (size_t i = 0; i < len; i++)
        print->definition = (print->definition ^ at[i]) * FNV_PRIME;
}

static void fingerprint_put_number(unsigned char *out, uint64_t number, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, number >>= 8)
        out[i] = (unsigned char)number;
}

void idem_print_number(struct idem_print *print, uint32_t number) {
    unsigned char bytes[4];

    fingerprint_put_number(bytes, number, 4);
    fingerprint_define(print, bytes, sizeof(bytes));
}

/* `wanted` is the kind that the definition records. */
static void fingerprint_open_part(struct idem_print *print, const char *name,
                                  enum idem_print_kind kind, enum idem_print_kind wanted) {
    unsigned char tail[5] = {(unsigned char)wanted};
    size_t len = strlen(name);

    fingerprint_put_number(tail + 1, len, 4);
    fingerprint_define(print, name, len);
    fingerprint_define(print, tail, sizeof(tail));
    print->name = name;
    print->kind = kind;
    print->len = print->piece = 0;
}

void idem_print_open(struct idem_print *print, const char *name, enum idem_print_kind kind) {
    fingerprint_open_part(print, name, kind, kind);
}

void idem_print_open_plain(struct idem_print *print, const char *name) {
    fingerprint_open_part(print, name, IDEM_PRINT_BYTES, IDEM_PRINT_JSON);
}

void idem_print_open_pieces(struct idem_print *print, const char *name) {
    fingerprint_open_part(print, name, IDEM_PRINT_PIECES, IDEM_PRINT_JSON);
}

void idem_print_add(struct idem_print *print, const void *bytes, size_t len) {
    idem_sha_add(&print->parts, bytes, len);
    print->len += len;
}

/* The length of a piece follows it, as that of a part does. */
void idem_print_piece_end(struct idem_print *print) {
    unsigned char len[8];

    fingerprint_put_number(len, print->len - print->piece, 8);
    idem_print_add(print, len, sizeof(len));
    print->piece = print->len;
}

/* Collects the content of a part and the bytes behind it, if they are few: hashing many small
   pieces takes longer than hashing them together. */
struct part_buffer {
    struct idem_print *print;
    size_t len;
    unsigned char bytes[PART_BUFFER_MAX];
};

static void part_buffer_flush(struct part_buffer *buffer) {
    idem_sha_add(&buffer->print->parts, buffer->bytes, buffer->len);
    buffer->len = 0;
}

static void part_buffer_add(struct part_buffer *buffer, const void *bytes, size_t len) {
    if (len > PART_BUFFER_MAX - buffer->len)
        part_buffer_flush(buffer);
    if (len > PART_BUFFER_MAX) {
        idem_sha_add(&buffer->print->parts, bytes, len);
    } else if (len > 0) {
        memcpy(buffer->bytes + buffer->len, bytes, len);
        buffer->len += len;
    }
}

static void part_buffer_close(struct part_buffer *buffer) {
    const struct idem_print *print = buffer->print;
    unsigned char head[9], tail[4];
    size_t len = strlen(print->name);

    fingerprint_put_number(head, print->len, 8);
    head[8] = (unsigned char)print->kind;
    fingerprint_put_number(tail, len, 4);
    part_buffer_add(buffer, head, sizeof(head));
    part_buffer_add(buffer, print->name, len);
    part_buffer_add(buffer, tail, sizeof(tail));
    part_buffer_flush(buffer);
}

void idem_print_close(struct idem_print *print) {
    struct part_buffer buffer;

    buffer.print = print;
    buffer.len = 0;
    part_buffer_close(&buffer);
}

void idem_print_hashed(struct idem_print *print, const char *name,
                       const unsigned char hash[IDEM_HASH_LEN]) {
    fingerprint_open_part(print, name, IDEM_PRINT_HASH, IDEM_PRINT_JSON);
    idem_print_add(print, hash, IDEM_HASH_LEN);
    idem_print_close(print);
}

void idem_print_unread(struct idem_print *print, const char *name,
                       const unsigned char hash[IDEM_HASH_LEN]) {
    print->raw = true;
    idem_print_hashed(print, name, hash);
}

void idem_print_bytes(struct idem_print *print, const char *name, const void *bytes, size_t len) {
    struct part_buffer buffer;

    buffer.print = print;
    buffer.len = 0;
    idem_print_open(print, name, IDEM_PRINT_BYTES);
    print->len = len;
    part_buffer_add(&buffer, bytes, len);
    part_buffer_close(&buffer);
}

static int fingerprint_add_canonical(void *data, const char *bytes, size_t len) {
    idem_print_add(data, bytes, len);
    return 0;
}

int idem_print_json(struct idem_print *print, const char *name, enum idem_print_kind kind,
                    const struct idem_json *value, struct idem_error *err) {
    int rc;

    idem_print_open(print, name, kind);
    rc = idem_json_canon_exact(value, fingerprint_add_canonical, print, err);
    idem_print_close(print);
    return fingerprint_fail(print, rc);
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
        fingerprint_open_part(print, name, IDEM_PRINT_BYTES, IDEM_PRINT_JSON);
        idem_print_add(print, bytes, len);
        idem_print_close(print);
        return 0;
    }
    idem_print_arena(&arena, len);
    rc = idem_json_parse(bytes, len, &arena, &value, err);
    if (rc == 0)
        rc = idem_print_json(print, name, IDEM_PRINT_JSON, &value, err);
    idem_arena_free(&arena);
    return fingerprint_fail(print, rc);
}
