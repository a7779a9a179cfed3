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

enum idem_print_kind {
    IDEM_PRINT_BYTES = 1, /* byte for byte */
    IDEM_PRINT_JSON,      /* canonical: RFC 8785 */
    IDEM_PRINT_VALUE,     /* canonical value of an expression, which is the part's name */
    IDEM_PRINT_HASH,      /* the SHA-256 of the part's bytes */
    IDEM_PRINT_PIECES,    /* byte for byte, in delimited pieces */
};

struct idem_print {
    struct idem_sha parts;
    uint32_t definition; /* checksum of the names and kinds so far */
    const char *name;    /* of the open part, as are its kind and its length so far */
    enum idem_print_kind kind;
    uint64_t len, piece; /* piece: where the open part's last piece ended */
    int failed;          /* the code of the first part that was refused */
    bool raw;            /* JSON was too long and was hashed byte for byte */
};

/* Every begin needs its end, which returns the code of the first part that was refused, or
   IDEM_E_NOMEM if memory was short. *ret is then untouched. */
void idem_print_begin(struct idem_print *print);
int idem_print_end(struct idem_print *print, struct idem_fingerprint *ret);

/* Adds the number with which the user counts changes of the definition. */
void idem_print_number(struct idem_print *print, uint32_t number);

/* A part that is added in pieces. Its content is not kept, but `name` is borrowed until the
   part is closed. */
void idem_print_open(struct idem_print *print, const char *name, enum idem_print_kind kind);
void idem_print_add(struct idem_print *print, const void *bytes, size_t len);
void idem_print_close(struct idem_print *print);

/* A part in one piece. */
void idem_print_bytes(struct idem_print *print, const char *name, const void *bytes, size_t len);
/* 0, or the error of the canonical form. */
int idem_print_json(struct idem_print *print, const char *name, enum idem_print_kind kind,
                    const struct idem_json *value, struct idem_error *err);

/*
 * Bodies whose sender declares whether they are JSON. That declaration belongs to the compared
 * content, not to the definition: otherwise the sender could choose to skip the comparison.
 * idem_print_open_plain() opens a body that is not declared as JSON.
 */
void idem_print_open_plain(struct idem_print *print, const char *name);
/* The same, for a body of pieces, each ended by idem_print_piece_end(). The bytes between
   pieces are not compared, but the place where a piece ends is. */
void idem_print_open_pieces(struct idem_print *print, const char *name);
void idem_print_piece_end(struct idem_print *print);
/* Bodies known by their hash: one that is not declared as JSON, and one that is declared as
   JSON but was too long to be read. */
void idem_print_hashed(struct idem_print *print, const char *name,
                       const unsigned char hash[IDEM_HASH_LEN]);
void idem_print_unread(struct idem_print *print, const char *name,
                       const unsigned char hash[IDEM_HASH_LEN]);

/* Sets up the memory for the tree of a document of `len` bytes: a multiple of its size. */
void idem_print_arena(struct idem_arena *arena, size_t len);

/*
 * A body: canonical if `json` is set and it has at most `json_max` bytes, byte for byte
 * otherwise; the definition's id records which of the two. JSON that cannot be parsed is
 * IDEM_E_INVALID: two documents that cannot be read cannot be called equal.
 */
int idem_print_body(struct idem_print *print, const char *name, bool json, size_t json_max,
                    const void *bytes, size_t len, struct idem_error *err);

#endif
