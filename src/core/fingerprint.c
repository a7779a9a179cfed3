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

void idem_fingerprint_begin(struct idem_fingerprint_hash *fingerprint) {
    static const char tag[] = "idem fingerprint 2";

    *fingerprint = (struct idem_fingerprint_hash){.definition = FNV_BASIS};
    idem_sha_begin(&fingerprint->parts);
    idem_sha_add(&fingerprint->parts, tag, sizeof(tag));
}

int idem_fingerprint_end(struct idem_fingerprint_hash *fingerprint, struct idem_fingerprint *ret) {
    unsigned char parts[IDEM_HASH_LEN];
    int rc = idem_sha_end(&fingerprint->parts, parts);

    if (fingerprint->failed != 0)
        rc = fingerprint->failed;
    if (rc != 0)
        return rc;
    memcpy(ret->hash, parts, IDEM_HASH_LEN);
    ret->definition = (fingerprint->definition | IDEM_DEFINITION_COMPUTED) & ~IDEM_DEFINITION_RAW;
    if (fingerprint->raw)
        ret->definition |= IDEM_DEFINITION_RAW;
    return 0;
}

/* One refused part spoils the whole fingerprint. */
static int fingerprint_fail(struct idem_fingerprint_hash *fingerprint, int rc) {
    if (fingerprint->failed == 0)
        fingerprint->failed = rc;
    return rc;
}

static void fingerprint_define(struct idem_fingerprint_hash *fingerprint, const void *bytes,
                               size_t len) {
    const unsigned char *at = bytes;

    for (size_t i = 0; i < len; i++)
        fingerprint->definition = (fingerprint->definition ^ at[i]) * FNV_PRIME;
}

static void fingerprint_put_number(unsigned char *out, uint64_t number, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, number >>= 8)
        out[i] = (unsigned char)number;
}

void idem_fingerprint_number(struct idem_fingerprint_hash *fingerprint, uint32_t number) {
    unsigned char bytes[4];

    fingerprint_put_number(bytes, number, 4);
    fingerprint_define(fingerprint, bytes, sizeof(bytes));
}

/* `wanted` is the kind that the definition records. */
static void fingerprint_open_part(struct idem_fingerprint_hash *fingerprint, const char *name,
                                  enum idem_fingerprint_kind kind,
                                  enum idem_fingerprint_kind wanted) {
    unsigned char tail[5] = {(unsigned char)wanted};
    size_t len = strlen(name);

    fingerprint_put_number(tail + 1, len, 4);
    fingerprint_define(fingerprint, name, len);
    fingerprint_define(fingerprint, tail, sizeof(tail));
    fingerprint->name = name;
    fingerprint->kind = kind;
    fingerprint->len = fingerprint->piece = 0;
}

void idem_fingerprint_open(struct idem_fingerprint_hash *fingerprint, const char *name,
                           enum idem_fingerprint_kind kind) {
    fingerprint_open_part(fingerprint, name, kind, kind);
}

void idem_fingerprint_open_plain(struct idem_fingerprint_hash *fingerprint, const char *name) {
    fingerprint_open_part(fingerprint, name, IDEM_FINGERPRINT_BYTES, IDEM_FINGERPRINT_JSON);
}

void idem_fingerprint_open_pieces(struct idem_fingerprint_hash *fingerprint, const char *name) {
    fingerprint_open_part(fingerprint, name, IDEM_FINGERPRINT_PIECES, IDEM_FINGERPRINT_JSON);
}

void idem_fingerprint_add(struct idem_fingerprint_hash *fingerprint, const void *bytes,
                          size_t len) {
    idem_sha_add(&fingerprint->parts, bytes, len);
    fingerprint->len += len;
}

/* The length of a piece follows it, as that of a part does. */
void idem_fingerprint_piece_end(struct idem_fingerprint_hash *fingerprint) {
    unsigned char len[8];

    fingerprint_put_number(len, fingerprint->len - fingerprint->piece, 8);
    idem_fingerprint_add(fingerprint, len, sizeof(len));
    fingerprint->piece = fingerprint->len;
}

/* Collects the content of a part and the bytes behind it, if they are few: hashing many small
   pieces takes longer than hashing them together. */
struct part_buffer {
    struct idem_fingerprint_hash *fingerprint;
    size_t len;
    unsigned char bytes[PART_BUFFER_MAX];
};

static void part_buffer_flush(struct part_buffer *buffer) {
    idem_sha_add(&buffer->fingerprint->parts, buffer->bytes, buffer->len);
    buffer->len = 0;
}

static void part_buffer_add(struct part_buffer *buffer, const void *bytes, size_t len) {
    if (len > PART_BUFFER_MAX - buffer->len)
        part_buffer_flush(buffer);
    if (len > PART_BUFFER_MAX) {
        idem_sha_add(&buffer->fingerprint->parts, bytes, len);
    } else if (len > 0) {
        memcpy(buffer->bytes + buffer->len, bytes, len);
        buffer->len += len;
    }
}

static void part_buffer_close(struct part_buffer *buffer) {
    const struct idem_fingerprint_hash *fingerprint = buffer->fingerprint;
    unsigned char head[9], tail[4];
    size_t len = strlen(fingerprint->name);

    fingerprint_put_number(head, fingerprint->len, 8);
    head[8] = (unsigned char)fingerprint->kind;
    fingerprint_put_number(tail, len, 4);
    part_buffer_add(buffer, head, sizeof(head));
    part_buffer_add(buffer, fingerprint->name, len);
    part_buffer_add(buffer, tail, sizeof(tail));
    part_buffer_flush(buffer);
}

void idem_fingerprint_close(struct idem_fingerprint_hash *fingerprint) {
    struct part_buffer buffer;

    buffer.fingerprint = fingerprint;
    buffer.len = 0;
    part_buffer_close(&buffer);
}

void idem_fingerprint_hashed(struct idem_fingerprint_hash *fingerprint, const char *name,
                             const unsigned char hash[IDEM_HASH_LEN]) {
    fingerprint_open_part(fingerprint, name, IDEM_FINGERPRINT_HASH, IDEM_FINGERPRINT_JSON);
    idem_fingerprint_add(fingerprint, hash, IDEM_HASH_LEN);
    idem_fingerprint_close(fingerprint);
}

void idem_fingerprint_unread(struct idem_fingerprint_hash *fingerprint, const char *name,
                             const unsigned char hash[IDEM_HASH_LEN]) {
    fingerprint->raw = true;
    idem_fingerprint_hashed(fingerprint, name, hash);
}

void idem_fingerprint_bytes(struct idem_fingerprint_hash *fingerprint, const char *name,
                            const void *bytes, size_t len) {
    struct part_buffer buffer;

    buffer.fingerprint = fingerprint;
    buffer.len = 0;
    idem_fingerprint_open(fingerprint, name, IDEM_FINGERPRINT_BYTES);
    fingerprint->len = len;
    part_buffer_add(&buffer, bytes, len);
    part_buffer_close(&buffer);
}

static int fingerprint_add_canonical(void *data, const char *bytes, size_t len) {
    idem_fingerprint_add(data, bytes, len);
    return 0;
}

int idem_fingerprint_json(struct idem_fingerprint_hash *fingerprint, const char *name,
                          enum idem_fingerprint_kind kind, const struct idem_json *value,
                          struct idem_error *err) {
    int rc;

    idem_fingerprint_open(fingerprint, name, kind);
    rc = idem_json_canon_exact(value, fingerprint_add_canonical, fingerprint, err);
    idem_fingerprint_close(fingerprint);
    return fingerprint_fail(fingerprint, rc);
}

void idem_fingerprint_arena(struct idem_arena *arena, size_t len) {
    idem_arena_init(arena, JSON_ROOM_MIN + JSON_ROOM * len);
}

int idem_fingerprint_body(struct idem_fingerprint_hash *fingerprint, const char *name, bool json,
                          size_t json_max, const void *bytes, size_t len, struct idem_error *err) {
    struct idem_arena arena;
    struct idem_json value;
    int rc;

    if (!json) {
        idem_fingerprint_bytes(fingerprint, name, bytes, len);
        return 0;
    }
    if (len > json_max) {
        fingerprint->raw = true;
        fingerprint_open_part(fingerprint, name, IDEM_FINGERPRINT_BYTES, IDEM_FINGERPRINT_JSON);
        idem_fingerprint_add(fingerprint, bytes, len);
        idem_fingerprint_close(fingerprint);
        return 0;
    }
    idem_fingerprint_arena(&arena, len);
    rc = idem_json_parse(bytes, len, &arena, &value, err);
    if (rc == 0)
        rc = idem_fingerprint_json(fingerprint, name, IDEM_FINGERPRINT_JSON, &value, err);
    idem_arena_free(&arena);
    return fingerprint_fail(fingerprint, rc);
}
