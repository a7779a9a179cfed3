/*
 * Secrets. What was read of the file is wiped as soon as it was understood. Fails on a file that
 * others could read or change, and on a line that is not understood: a key that is left out without
 * a word would be refused at night.
 */
#include "sign/keyring.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/words.h"
#include "http/binary.h"
#include "http/chars.h"

#define FILE_MAX (1 << 20)
#define SECRET_MIN 16 /* bytes; fewer can be guessed */
#define SECRET_MAX 1024
#define ED25519_LEN 32
#define HMAC_LEN 32

struct key {
    enum idem_sign_alg alg;
    bool signs;
    size_t id_len, secret_len;
    EVP_PKEY *pkey; /* ed25519 */
    unsigned char secret[SECRET_MAX];
    char id[IDEM_KEY_ID_MAX];
};

struct idem_keyring {
    struct key *keys;
    size_t n, room;
    struct key nobody; /* tried for ids that nobody has */
};

/* clang-format off */
static const struct idem_word words_alg[] = {
    {"hmac-sha256", IDEM_SIGN_HMAC_SHA256},
    {"ed25519", IDEM_SIGN_ED25519},
    {NULL, 0},
};
/* clang-format on */

const char *idem_sign_alg_name(enum idem_sign_alg alg) {
    return idem_word_name(words_alg, (int)alg);
}

bool idem_sign_alg_find(struct idem_http_text name, enum idem_sign_alg *ret) {
    int alg;

    if (!idem_word_find(words_alg, name.at, name.len, &alg))
        return false;
    *ret = (enum idem_sign_alg)alg;
    return true;
}

/* The file. */

struct place {
    const char *name;
    size_t line;
};

static struct idem_http_text word_next(struct idem_http_text *line) {
    struct idem_http_text word;

    *line = idem_http_trim(*line);
    word = (struct idem_http_text){line->at, 0};
    while (word.len < line->len && !idem_is_blank(line->at[word.len]))
        word.len++;
    line->at += word.len;
    line->len -= word.len;
    return word;
}

static bool begins(struct idem_http_text *text, const char *with) {
    size_t len = strlen(with);

    if (text->len < len || memcmp(text->at, with, len) != 0)
        return false;
    text->at += len;
    text->len -= len;
    return true;
}

static int value_read(struct idem_http_text value, struct key *key, const struct place *place,
                      struct idem_error *err) {
    bool ok;

    if (begins(&value, "text:")) {
        ok = value.len <= SECRET_MAX;
        if (ok) {
            memcpy(key->secret, value.at, value.len);
            key->secret_len = value.len;
        }
    } else if (begins(&value, "base64:")) {
        ok = idem_base64_decode(value, key->secret, SECRET_MAX, &key->secret_len);
    } else if (begins(&value, "hex:")) {
        ok = idem_hex_decode(value, key->secret, SECRET_MAX, &key->secret_len);
    } else {
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s:%zu: the value must begin with text:, base64: or hex:, which say "
                              "how it is written",
                              place->name, place->line);
    }
    if (ok)
        return 0;
    return idem_error_set(err, IDEM_E_INVALID,
                          "%s:%zu: the value cannot be read as it says, or has more than %d bytes",
                          place->name, place->line, SECRET_MAX);
}

static int ed25519_make(struct key *key, const struct place *place, struct idem_error *err) {
    if (key->secret_len != ED25519_LEN)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s:%zu: a key for ed25519 has 32 bytes, not %zu: the raw key, "
                              "without what a PEM or DER file has around it",
                              place->name, place->line, key->secret_len);
    ERR_set_mark();
    key->pkey = key->signs
                    ? EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, key->secret, ED25519_LEN)
                    : EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->secret, ED25519_LEN);
    ERR_pop_to_mark();
    OPENSSL_cleanse(key->secret, sizeof(key->secret));
    if (key->pkey != NULL)
        return 0;
    return idem_error_set(err, IDEM_E_INVALID, "%s:%zu: it is no key for ed25519", place->name,
                          place->line);
}

/* The word is not shown: where the algorithm was forgotten, it is a secret. */
static int alg_read(struct idem_http_text alg, struct key *key, const struct place *place,
                    struct idem_error *err) {
    key->signs = true;
    if (idem_sign_alg_find(alg, &key->alg)) {
        key->signs = key->alg == IDEM_SIGN_HMAC_SHA256;
        return 0;
    }
    if (begins(&alg, "ed25519-secret") && alg.len == 0) {
        key->alg = IDEM_SIGN_ED25519;
        return 0;
    }
    return idem_error_set(err, IDEM_E_INVALID,
                          "%s:%zu: the second word is no algorithm; allowed: hmac-sha256, ed25519 "
                          "(a public key), ed25519-secret (a private one)",
                          place->name, place->line);
}

static int id_read(struct idem_http_text id, struct key *key, const struct place *place,
                   struct idem_error *err) {
    bool ok = id.len <= IDEM_KEY_ID_MAX;

    for (size_t i = 0; ok && i < id.len; i++)
        ok = idem_is_visible(id.at[i]);
    if (!ok)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s:%zu: the key's id must be 1 to %d visible ASCII characters",
                              place->name, place->line, IDEM_KEY_ID_MAX);
    memcpy(key->id, id.at, id.len);
    key->id_len = id.len;
    return 0;
}

/* The value is the rest of the line, since a text may have blanks. */
static int line_read(struct idem_http_text line, struct key *key, const struct place *place,
                     struct idem_error *err) {
    struct idem_http_text id = word_next(&line), alg = word_next(&line);
    int rc = id_read(id, key, place, err);

    if (rc != 0)
        return rc;
    line = idem_http_trim(line);
    if (alg.len == 0 || line.len == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s:%zu: a key is written as three words: its id, its algorithm and "
                              "its value",
                              place->name, place->line);
    if ((rc = alg_read(alg, key, place, err)) != 0 || (rc = value_read(line, key, place, err)) != 0)
        return rc;
    if (key->alg == IDEM_SIGN_ED25519)
        return ed25519_make(key, place, err);
    if (key->secret_len < SECRET_MIN)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s:%zu: the secret has %zu bytes, which can be guessed; use at "
                              "least %d, better 32 random ones",
                              place->name, place->line, key->secret_len, SECRET_MIN);
    return 0;
}

/* Grown by hand: realloc() would leave copies of secrets behind. */
static struct key *key_add(struct idem_keyring *keyring) {
    if (keyring->n == keyring->room) {
        size_t room = keyring->room == 0 ? 4 : 2 * keyring->room;
        struct key *keys = calloc(room, sizeof(*keys));

        if (keys == NULL)
            return NULL;
        if (keyring->n > 0) {
            memcpy(keys, keyring->keys, keyring->n * sizeof(*keys));
            OPENSSL_cleanse(keyring->keys, keyring->n * sizeof(*keys));
        }
        free(keyring->keys);
        keyring->keys = keys;
        keyring->room = room;
    }
    return &keyring->keys[keyring->n++];
}

static int lines_read(struct idem_keyring *keyring, const char *name, struct idem_http_text text,
                      struct idem_error *err) {
    struct place place = {name, 0};

    while (text.len > 0) {
        const char *end = memchr(text.at, '\n', text.len);
        struct idem_http_text line = {text.at, end != NULL ? (size_t)(end - text.at) : text.len};
        size_t used = line.len + (end != NULL);
        struct key *key;
        int rc;

        text.at += used;
        text.len -= used;
        place.line++;
        if (line.len > 0 && line.at[line.len - 1] == '\r')
            line.len--;
        line = idem_http_trim(line);
        if (line.len == 0 || line.at[0] == '#')
            continue;
        key = key_add(keyring);
        if (key == NULL)
            return idem_error_set(err, IDEM_E_NOMEM, "%s: no memory for its keys", name);
        if ((rc = line_read(line, key, &place, err)) != 0)
            return rc;
    }
    if (keyring->n == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: there is no key in it; write one to a line: ID hmac-sha256 "
                              "base64:SECRET",
                              name);
    return 0;
}

int idem_keyring_parse(const char *name, const char *text, size_t len, struct idem_keyring **ret,
                       struct idem_error *err) {
    struct idem_keyring *keyring = calloc(1, sizeof(*keyring));
    int rc;

    if (keyring == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "%s: no memory for its keys", name);
    keyring->nobody.alg = IDEM_SIGN_HMAC_SHA256;
    keyring->nobody.secret_len = HMAC_LEN;
    rc = idem_random(keyring->nobody.secret, HMAC_LEN);
    if (rc != 0)
        rc = idem_error_set(err, rc, "the system gives no random bits");
    else
        rc = lines_read(keyring, name, (struct idem_http_text){text, len}, err);
    if (rc != 0) {
        idem_keyring_free(keyring);
        return rc;
    }
    *ret = keyring;
    return 0;
}

/* Like a private key of PostgreSQL's: its owner's alone, or root's with one group that reads. */
static int mode_check(const char *path, const struct stat *st, struct idem_error *err) {
    mode_t others = st->st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO;

    if (!S_ISREG(st->st_mode))
        return idem_error_set(err, IDEM_E_INVALID, "%s: it is no regular file", path);
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: it belongs to user %ld, who could change the secrets in it; it "
                              "must be root's, or that of who runs this",
                              path, (long)st->st_uid);
    if ((st->st_mode & others) != 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: its mode is %04o, by which others could read or change the "
                              "secrets in it; say chmod 600",
                              path, (unsigned)(st->st_mode & 07777));
    if (st->st_size > FILE_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "%s: it has more than %d bytes", path, FILE_MAX);
    return 0;
}

/* At most `size` bytes, of a file that may change meanwhile. */
static ssize_t file_read(int fd, char *buf, size_t size) {
    size_t len = 0;

    while (len < size) {
        ssize_t n = read(fd, buf + len, size - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

static int fd_load(int fd, const char *path, struct idem_keyring **ret, struct idem_error *err) {
    struct stat st;
    ssize_t len;
    char *text;
    int rc;

    if (fstat(fd, &st) != 0)
        return idem_error_set(err, IDEM_E_INVALID, "%s: %s", path, strerror(errno));
    if ((rc = mode_check(path, &st, err)) != 0)
        return rc;
    text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "%s: no memory to read it", path);
    len = file_read(fd, text, (size_t)st.st_size);
    rc = len < 0 ? idem_error_set(err, IDEM_E_INVALID, "%s: %s", path, strerror(errno))
                 : idem_keyring_parse(path, text, (size_t)len, ret, err);
    OPENSSL_cleanse(text, (size_t)st.st_size + 1);
    free(text);
    return rc;
}

int idem_keyring_load(const char *path, struct idem_keyring **ret, struct idem_error *err) {
    /* a pipe that nobody writes to must not hang who opens it */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int rc;

    if (fd < 0)
        return idem_error_set(err, IDEM_E_INVALID, "%s: %s", path, strerror(errno));
    rc = fd_load(fd, path, ret, err);
    close(fd);
    return rc;
}

void idem_keyring_free(struct idem_keyring *keyring) {
    if (keyring == NULL)
        return;
    for (size_t i = 0; i < keyring->n; i++)
        EVP_PKEY_free(keyring->keys[i].pkey);
    if (keyring->keys != NULL)
        OPENSSL_cleanse(keyring->keys, keyring->room * sizeof(*keyring->keys));
    free(keyring->keys);
    OPENSSL_cleanse(keyring, sizeof(*keyring));
    free(keyring);
}

/* Its use. */

static bool key_is(const struct key *key, struct idem_http_text id) {
    return key->id_len == id.len && memcmp(key->id, id.at, id.len) == 0;
}

bool idem_keyring_knows(const struct idem_keyring *keyring, struct idem_http_text id) {
    for (size_t i = 0; i < keyring->n; i++)
        if (key_is(&keyring->keys[i], id))
            return true;
    return false;
}

static bool hmac_make(const unsigned char *secret, size_t len, struct idem_http_text text,
                      unsigned char out[HMAC_LEN]) {
    return HMAC(EVP_sha256(), secret, (int)len, (const unsigned char *)text.at, text.len, out,
                NULL) != NULL;
}

static bool ed25519_verify(const struct key *key, struct idem_http_text text,
                           const unsigned char *signature, size_t len) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key->pkey) == 1 &&
              EVP_DigestVerify(ctx, signature, len, (const unsigned char *)text.at, text.len) == 1;

    EVP_MD_CTX_free(ctx);
    return ok;
}

/* What fails here must not stay in the host program's queue of errors, where it would be taken for
   its own. */
static bool key_verify(const struct key *key, struct idem_http_text text,
                       const unsigned char *signature, size_t len) {
    unsigned char made[HMAC_LEN] = {0};
    bool ok;

    ERR_set_mark();
    if (key->alg == IDEM_SIGN_ED25519)
        ok = ed25519_verify(key, text, signature, len);
    else
        ok = hmac_make(key->secret, key->secret_len, text, made) && len == HMAC_LEN &&
             CRYPTO_memcmp(made, signature, HMAC_LEN) == 0;
    OPENSSL_cleanse(made, sizeof(made));
    ERR_pop_to_mark();
    return ok;
}

bool idem_keyring_verify(const struct idem_keyring *keyring, struct idem_http_text id,
                         enum idem_sign_alg alg, struct idem_http_text text,
                         const unsigned char *signature, size_t len) {
    bool tried = false, good = false;

    for (size_t i = 0; i < keyring->n; i++) {
        const struct key *key = &keyring->keys[i];

        if (!key_is(key, id) || (alg != 0 && key->alg != alg))
            continue;
        tried = true;
        if (key_verify(key, text, signature, len))
            good = true;
    }
    if (!tried)
        (void)key_verify(&keyring->nobody, text, signature, len);
    return good;
}

bool idem_keyring_id(const struct idem_keyring *keyring, size_t at, struct idem_http_text *ret) {
    if (at >= keyring->n)
        return false;
    *ret = (struct idem_http_text){keyring->keys[at].id, keyring->keys[at].id_len};
    return true;
}

/* The four ways to take a secret for its text, or its text for the secret. */
#define MISREAD_MAX IDEM_HEX_TEXT(SECRET_MAX)
static bool secret_misread(const struct key *key, int way, unsigned char out[MISREAD_MAX],
                           size_t *ret_len) {
    struct idem_http_text text = {(const char *)key->secret, key->secret_len};

    switch (way) {
    case 0:
        return idem_base64_decode(text, out, MISREAD_MAX, ret_len);
    case 1:
        return idem_hex_decode(text, out, MISREAD_MAX, ret_len);
    case 2:
        idem_base64_encode(key->secret, key->secret_len, (char *)out);
        break;
    default:
        idem_hex_encode(key->secret, key->secret_len, (char *)out);
    }
    *ret_len = strlen((char *)out);
    return true;
}

static bool key_verify_text(const struct key *key, struct idem_http_text text,
                            const unsigned char *signature, size_t len) {
    unsigned char secret[MISREAD_MAX], made[HMAC_LEN] = {0};
    size_t secret_len;
    bool ok = false;

    if (key->alg != IDEM_SIGN_HMAC_SHA256 || len != HMAC_LEN)
        return false;
    for (int way = 0; !ok && way < 4; way++)
        ok = secret_misread(key, way, secret, &secret_len) && secret_len > 0 &&
             hmac_make(secret, secret_len, text, made) &&
             CRYPTO_memcmp(made, signature, HMAC_LEN) == 0;
    OPENSSL_cleanse(secret, sizeof(secret));
    OPENSSL_cleanse(made, sizeof(made));
    return ok;
}

bool idem_keyring_verify_text(const struct idem_keyring *keyring, struct idem_http_text id,
                              struct idem_http_text text, const unsigned char *signature,
                              size_t len) {
    for (size_t i = 0; i < keyring->n; i++)
        if (key_is(&keyring->keys[i], id) &&
            key_verify_text(&keyring->keys[i], text, signature, len))
            return true;
    return false;
}

static const struct key *key_that_signs(const struct idem_keyring *keyring,
                                        struct idem_http_text id) {
    for (size_t i = 0; i < keyring->n; i++)
        if (keyring->keys[i].signs && key_is(&keyring->keys[i], id))
            return &keyring->keys[i];
    return NULL;
}

enum idem_sign_alg idem_keyring_alg(const struct idem_keyring *keyring, struct idem_http_text id) {
    const struct key *key = key_that_signs(keyring, id);

    return key != NULL ? key->alg : 0;
}

static bool ed25519_make_signature(const struct key *key, struct idem_http_text text,
                                   unsigned char out[IDEM_SIGNATURE_MAX]) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t len = IDEM_SIGNATURE_MAX;
    bool ok = ctx != NULL && EVP_DigestSignInit(ctx, NULL, NULL, NULL, key->pkey) == 1 &&
              EVP_DigestSign(ctx, out, &len, (const unsigned char *)text.at, text.len) == 1 &&
              len == IDEM_SIGNATURE_MAX;

    EVP_MD_CTX_free(ctx);
    return ok;
}

int idem_keyring_sign(const struct idem_keyring *keyring, struct idem_http_text id,
                      struct idem_http_text text, unsigned char out[IDEM_SIGNATURE_MAX],
                      size_t *ret_len, struct idem_error *err) {
    const struct key *key = key_that_signs(keyring, id);
    char quoted[IDEM_QUOTE_TEXT];
    bool ok;

    if (key == NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "there is no key of id %s that can sign: hmac-sha256, or "
                              "ed25519-secret",
                              idem_error_quote(id.at, id.len, quoted, sizeof(quoted)));
    ok = key->alg == IDEM_SIGN_ED25519 ? ed25519_make_signature(key, text, out)
                                       : hmac_make(key->secret, key->secret_len, text, out);
    if (!ok)
        return idem_error_set(err, IDEM_E_NOMEM, "the signature could not be made");
    *ret_len = key->alg == IDEM_SIGN_ED25519 ? IDEM_SIGNATURE_MAX : HMAC_LEN;
    return 0;
}
