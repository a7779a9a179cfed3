/*
 * Fingerprints: what must be equal when a key comes back, part by part, as one
 * SHA-256. Each part has a name and a kind, and is delimited, so that no two
 * requests that differ can give the same bytes.
 *
 * Names and kinds of all parts are the definition; its id stands beside the
 * hash, and fingerprints of two definitions are never compared. Its lowest bit
 * says that JSON was too long to be read. Such a one is compared with those of
 * the same definition that were read, and always differs: who sends the request
 * chooses its length, and must not choose with it whether it is compared.
 */
#ifndef IDEM_CORE_PRINT_H
#define IDEM_CORE_PRINT_H

#include "core/hash.h"
#include "json/json.h"

enum idem_print_kind {
    IDEM_PRINT_BYTES = 1, /* byte for byte */
    IDEM_PRINT_JSON,      /* canonical: RFC 8785 */
    IDEM_PRINT_VALUE,     /* canonical, of an expression, which is the part's name */
    IDEM_PRINT_HASH,      /* the SHA-256 of its bytes */
    IDEM_PRINT_PIECES,    /* byte for byte, piece by piece */
};

struct idem_print {
    struct idem_sha parts;
    uint32_t definition; /* so far */
    const char *name;    /* of the part being added; its kind, and its length so far */
    enum idem_print_kind kind;
    uint64_t len, piece; /* where its last piece ended */
    int failed;          /* the code of the first part that was refused */
    bool raw;            /* JSON was too long, and taken byte for byte */
};

/* Every begin needs its end, which repeats the code of a part that was refused, or says
   IDEM_E_NOMEM if anything failed for want of memory. *ret is then untouched. */
void idem_print_begin(struct idem_print *print);
int idem_print_end(struct idem_print *print, struct idem_fingerprint *ret);

/* The definition's own number, where its user counts changes of it. */
void idem_print_number(struct idem_print *print, uint32_t number);

/* A part in as many pieces as it comes in: nothing of it is kept, but the name is borrowed until it
   is closed. */
void idem_print_open(struct idem_print *print, const char *name, enum idem_print_kind kind);
void idem_print_add(struct idem_print *print, const void *bytes, size_t len);
void idem_print_close(struct idem_print *print);

/* A whole part. */
void idem_print_bytes(struct idem_print *print, const char *name, const void *bytes, size_t len);
/* 0, or what the canonical form refuses. */
int idem_print_json(struct idem_print *print, const char *name, enum idem_print_kind kind,
                    const struct idem_json *value, struct idem_error *err);

/*
 * Bodies of which the sender says whether they are JSON: that is part of what is
 * compared, not of the definition, or he could choose whether it is. A body that
 * is none, opened like a part, or known by its hash; and one that says it is,
 * cannot be read and was hashed by its bytes.
 */
void idem_print_open_plain(struct idem_print *print, const char *name);
/* Likewise, of a body that consists of pieces, each of which is ended: what stood between them is
   not compared, but where one ends is. */
void idem_print_open_pieces(struct idem_print *print, const char *name);
void idem_print_piece_end(struct idem_print *print);
/* The two that are known by their hash. */
void idem_print_hashed(struct idem_print *print, const char *name,
                       const unsigned char hash[IDEM_HASH_LEN]);
void idem_print_unread(struct idem_print *print, const char *name,
                       const unsigned char hash[IDEM_HASH_LEN]);

/* Where memory for the tree of a document comes from: some times its size. */
void idem_print_arena(struct idem_arena *arena, size_t len);

/*
 * A body: canonical if it says that it is JSON and has at most `json_max` bytes,
 * byte for byte otherwise; the definition's id says which of the two. JSON that cannot be
 * read is IDEM_E_INVALID: what nobody can read as the same, nobody may call so.
 */
int idem_print_body(struct idem_print *print, const char *name, bool json, size_t json_max,
                    const void *bytes, size_t len, struct idem_error *err);

#endif
