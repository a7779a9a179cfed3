/*
 * Fingerprints: everything that must be equal when a key is used again, part by part, as one
 * SHA-256. Each part has a name and a kind and is delimited, so two different requests never give
 * the same bytes.
 *
 * Names and kinds of all parts form the definition. Its id is stored beside the hash, and
 * fingerprints of two definitions are never compared. The lowest bit of the id marks JSON that
 * was too long to be read. Such a fingerprint is compared with those of the same definition whose
 * JSON was read, and always differs: the client chooses the length of a request, and must not
 * thereby choose to skip the comparison.
 */
#ifndef IDEM_CORE_FINGERPRINT_H
#define IDEM_CORE_FINGERPRINT_H

#include "base/hash.h"
#include "protocol/record.h"
#include "json/json.h"

enum idem_fingerprint_kind {
    IDEM_FINGERPRINT_BYTES = 1, /* byte for byte */
    IDEM_FINGERPRINT_JSON,      /* canonical: RFC 8785 */
    IDEM_FINGERPRINT_VALUE,     /* canonical value of an expression, which is the part's name */
    IDEM_FINGERPRINT_HASH,      /* the SHA-256 of the part's bytes */
    IDEM_FINGERPRINT_PIECES,    /* byte for byte, in delimited pieces */
};

struct idem_fingerprint_hash {
    struct idem_sha parts;
    uint32_t definition; /* checksum of the names and kinds so far */
    const char *name;    /* of the open part, as are its kind and its length so far */
    enum idem_fingerprint_kind kind;
    uint64_t len, piece; /* piece: where the open part's last piece ended */
    int failed;          /* the code of the first part that was refused */
    bool raw;            /* JSON was too long and was hashed byte for byte */
};

/* Every begin needs its end, which returns the code of the first part that was refused, or
   IDEM_E_NOMEM if memory was short. *ret is then untouched. */
void idem_fingerprint_begin(struct idem_fingerprint_hash *fingerprint);
int idem_fingerprint_end(struct idem_fingerprint_hash *fingerprint, struct idem_fingerprint *ret);

/* Adds the number with which the user counts changes of the definition. */
void idem_fingerprint_number(struct idem_fingerprint_hash *fingerprint, uint32_t number);

/* A part that is added in pieces. Its content is not kept, but `name` is borrowed until the
   part is closed. */
void idem_fingerprint_open(struct idem_fingerprint_hash *fingerprint, const char *name,
                           enum idem_fingerprint_kind kind);
void idem_fingerprint_add(struct idem_fingerprint_hash *fingerprint, const void *bytes, size_t len);
void idem_fingerprint_close(struct idem_fingerprint_hash *fingerprint);

/* A part in one piece. */
void idem_fingerprint_bytes(struct idem_fingerprint_hash *fingerprint, const char *name,
                            const void *bytes, size_t len);
/* 0, or the error of the canonical form. */
int idem_fingerprint_json(struct idem_fingerprint_hash *fingerprint, const char *name,
                          enum idem_fingerprint_kind kind, const struct idem_json *value,
                          struct idem_error *err);

/*
 * Bodies whose sender declares whether they are JSON. That declaration belongs to the compared
 * content, not to the definition: otherwise the sender could choose to skip the comparison.
 * idem_fingerprint_open_plain() opens a body that is not declared as JSON.
 */
void idem_fingerprint_open_plain(struct idem_fingerprint_hash *fingerprint, const char *name);
/* The same, for a body of pieces, each ended by idem_fingerprint_piece_end(). The bytes between
   pieces are not compared, but the place where a piece ends is. */
void idem_fingerprint_open_pieces(struct idem_fingerprint_hash *fingerprint, const char *name);
void idem_fingerprint_piece_end(struct idem_fingerprint_hash *fingerprint);
/* Bodies known by their hash: one that is not declared as JSON, and one that is declared as
   JSON but was too long to be read. */
void idem_fingerprint_hashed(struct idem_fingerprint_hash *fingerprint, const char *name,
                             const unsigned char hash[IDEM_HASH_LEN]);
void idem_fingerprint_unread(struct idem_fingerprint_hash *fingerprint, const char *name,
                             const unsigned char hash[IDEM_HASH_LEN]);

/* Sets up the memory for the tree of a document of `len` bytes: a multiple of its size. */
void idem_fingerprint_arena(struct idem_arena *arena, size_t len);

/*
 * A body: canonical if `json` is set and it has at most `json_max` bytes, byte for byte
 * otherwise; the definition's id records which of the two. JSON that cannot be parsed is
 * IDEM_E_INVALID: two documents that cannot be read cannot be called equal.
 */
int idem_fingerprint_body(struct idem_fingerprint_hash *fingerprint, const char *name, bool json,
                          size_t json_max, const void *bytes, size_t len, struct idem_error *err);

#endif
