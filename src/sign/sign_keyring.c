/*
 * Secrets. The text of the file is wiped as soon as it is parsed. Fails on a file that other users
 * could read or change, and on a malformed line: a silently skipped key would be refused at night.
 */
#include "sign/sign_keyring.h"

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

#include "base/base64.h"
#include "base/bytes.h"
#include "base/chars.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/words.h"

#define FILE_MAX (1 << 20)
#define SECRET_MIN 16 /* bytes; a shorter secret can be guessed */
#define SECRET_MAX 1024
#define ED25519_LEN 32
#define HMAC_LEN 32
#define HMAC_BLOCK 64 /* of SHA-256; HMAC hashes a longer secret first */
#define ALGS (IDEM_SIGN_ED25519 + 1)

struct key {
    enum idem_sign_alg alg;
    bool signs;
    size_t id_len, secret_len, block_len;
    EVP_PKEY *pkey; /* ed25519 */
    unsigned char secret[SECRET_MAX];
    unsigned char
        block[HMAC_BLOCK]; /* the secret as HMAC uses it: the cost is the same at any length */
    char id[IDEM_KEY_ID_MAX];
};

struct idem_keyring {
    struct key *keys;
    size_t n, room;
    /* By algorithm: the largest number of keys of any id, and a decoy key that matches no
       signature. Each refusal costs that many verifications of each algorithm, whatever id it is
       for. */
    size_t most[ALGS];
    struct key decoys[ALGS];
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

static struct idem_http_text keyring_word_next(struct idem_http_text *line) {
    struct idem_http_text word;

    *line = idem_http_trim(*line);
    word = (struct idem_http_text){line->at, 0};
    while (word.len < line->len && !idem_is_blank(line->at[word.len]))
        word.len++;
    line->at += word.len;
    line->len -= word.len;
    return word;
}

/* Removes `with` from the beginning; false if the text begins otherwise. */
static bool keyring_text_take(struct idem_http_text *text, const char *with) {
    if (!idem_begins(text->at, text->len, with))
        return false;
    text->at += strlen(with);
    text->len -= strlen(with);
    return true;
}

static int keyring_value_read(struct idem_http_text value, struct key *key,
                              const struct place *place, struct idem_error *err) {
    bool ok;

    if (keyring_text_take(&value, "text:")) {
        ok = value.len <= SECRET_MAX;
        if (ok) {
            memcpy(key->secret, value.at, value.len);
            key->secret_len = value.len;
        }
    } else if (keyring_text_take(&value, "base64:")) {
        ok = idem_base64_decode(value.at, value.len, key->secret, SECRET_MAX, &key->secret_len);
    } else if (keyring_text_take(&value, "hex:")) {
        ok = idem_hex_decode(value.at, value.len, key->secret, SECRET_MAX, &key->secret_len);
    } else {
        return idem_error_set(
            err, IDEM_E_INVALID,
            "%s:%zu: the value must begin with its encoding: text:, base64: or hex:", place->name,
            place->line);
    }
    if (ok)
        return 0;
    return idem_error_set(
        err, IDEM_E_INVALID,
        "%s:%zu: the value is not in the encoding that it names, or has more than %d bytes",
        place->name, place->line, SECRET_MAX);
}

static int key_make_ed25519(struct key *key, const struct place *place, struct idem_error *err) {
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

static int key_make_hmac_block(struct key *key, struct idem_error *err) {
    if (key->secret_len <= HMAC_BLOCK) {
        memcpy(key->block, key->secret, key->secret_len);
        key->block_len = key->secret_len;
        return 0;
    }
    if (idem_sha256((struct idem_bytes){key->secret, key->secret_len}, key->block) != 0)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a secret");
    key->block_len = IDEM_HASH_LEN;
    return 0;
}

/* The error does not show the word: if the algorithm is missing, the word is a secret. */
static int keyring_alg_read(struct idem_http_text alg, struct key *key, const struct place *place,
                            struct idem_error *err) {
    key->signs = true;
    if (idem_sign_alg_find(alg, &key->alg)) {
        key->signs = key->alg == IDEM_SIGN_HMAC_SHA256;
        return 0;
    }
    if (keyring_text_take(&alg, "ed25519-secret") && alg.len == 0) {
        key->alg = IDEM_SIGN_ED25519;
        return 0;
    }
    return idem_error_set(err, IDEM_E_INVALID,
                          "%s:%zu: the second word is no algorithm; allowed: hmac-sha256, ed25519 "
                          "(a public key), ed25519-secret (a private one)",
                          place->name, place->line);
}

static int keyring_id_read(struct idem_http_text id, struct key *key, const struct place *place,
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
static int keyring_line_read(struct idem_http_text line, struct key *key, const struct place *place,
                             struct idem_error *err) {
    struct idem_http_text id = keyring_word_next(&line), alg = keyring_word_next(&line);
    int rc = keyring_id_read(id, key, place, err);

    if (rc != 0)
        return rc;
    line = idem_http_trim(line);
    if (alg.len == 0 || line.len == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s:%zu: a key is written as three words: its id, its algorithm and "
                              "its value",
                              place->name, place->line);
    if ((rc = keyring_alg_read(alg, key, place, err)) != 0 ||
        (rc = keyring_value_read(line, key, place, err)) != 0)
        return rc;
    if (key->alg == IDEM_SIGN_ED25519)
        return key_make_ed25519(key, place, err);
    if (key->secret_len < SECRET_MIN)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s:%zu: the secret has %zu bytes, which can be guessed; use at "
                              "least %d, better 32 random ones",
                              place->name, place->line, key->secret_len, SECRET_MIN);
    return key_make_hmac_block(key, err);
}

/* Allocates and copies: realloc() would leave copies of secrets behind. */
static struct key *keyring_key_add(struct idem_keyring *keyring) {
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

static int keyring_lines_read(struct idem_keyring *keyring, const char *name,
                              struct idem_http_text text, struct idem_error *err) {
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
        key = keyring_key_add(keyring);
        if (key == NULL)
            return idem_error_set(err, IDEM_E_NOMEM, "%s: no memory for its keys", name);
        if ((rc = keyring_line_read(line, key, &place, err)) != 0)
            return rc;
    }
    if (keyring->n == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: there is no key in it; write one to a line: ID hmac-sha256 "
                              "base64:SECRET",
                              name);
    return 0;
}

/* Sorts keys of one id and algorithm next to each other. */
static int keyring_key_compare(const void *a, const void *b) {
    const struct key *x = *(const struct key *const *)a, *y = *(const struct key *const *)b;

    if (x->alg != y->alg)
        return x->alg < y->alg ? -1 : 1;
    if (x->id_len != y->id_len)
        return x->id_len < y->id_len ? -1 : 1;
    return memcmp(x->id, y->id, x->id_len);
}

static int keyring_most_count(struct idem_keyring *keyring, struct idem_error *err) {
    const struct key **sorted = calloc(keyring->n, sizeof(struct key *));
    size_t same = 0;

    if (sorted == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for keys");
    for (size_t i = 0; i < keyring->n; i++)
        sorted[i] = &keyring->keys[i];
    qsort(sorted, keyring->n, sizeof(struct key *), keyring_key_compare);
    for (size_t i = 0; i < keyring->n; i++) {
        same = i > 0 && keyring_key_compare(&sorted[i - 1], &sorted[i]) == 0 ? same + 1 : 1;
        if (same > keyring->most[sorted[i]->alg])
            keyring->most[sorted[i]->alg] = same;
    }
    free(sorted);
    return 0;
}

static int keyring_decoys_make(struct idem_keyring *keyring, struct idem_error *err) {
    struct key *hmac = &keyring->decoys[IDEM_SIGN_HMAC_SHA256],
               *ed25519 = &keyring->decoys[IDEM_SIGN_ED25519];
    struct place place = {"a decoy key", 0};
    int rc;

    hmac->alg = IDEM_SIGN_HMAC_SHA256;
    hmac->secret_len = HMAC_LEN;
    ed25519->alg = IDEM_SIGN_ED25519;
    ed25519->signs = true;
    ed25519->secret_len = ED25519_LEN;
    if ((rc = idem_random(hmac->secret, HMAC_LEN)) != 0 ||
        (rc = idem_random(ed25519->secret, ED25519_LEN)) != 0)
        return idem_error_set(err, rc, "the system gives no random bits");
    if ((rc = key_make_hmac_block(hmac, err)) != 0)
        return rc;
    return keyring->most[IDEM_SIGN_ED25519] > 0 ? key_make_ed25519(ed25519, &place, err) : 0;
}

int idem_keyring_parse(const char *name, const char *text, size_t len, struct idem_keyring **ret,
                       struct idem_error *err) {
    struct idem_keyring *keyring = calloc(1, sizeof(*keyring));
    int rc;

    if (keyring == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "%s: no memory for its keys", name);
    if ((rc = keyring_lines_read(keyring, name, (struct idem_http_text){text, len}, err)) != 0 ||
        (rc = keyring_most_count(keyring, err)) != 0 ||
        (rc = keyring_decoys_make(keyring, err)) != 0) {
        idem_keyring_free(keyring);
        return rc;
    }
    *ret = keyring;
    return 0;
}

/* As PostgreSQL does for private keys: only the owner may read the file, or it belongs to root
   and one group may read it. */
static int keyring_mode_check(const char *path, const struct stat *st, struct idem_error *err) {
    mode_t others = st->st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO;

    if (!S_ISREG(st->st_mode))
        return idem_error_set(err, IDEM_E_INVALID, "%s: it is no regular file", path);
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: it belongs to user %ld, who could change the secrets in it; it "
                              "must belong to root, or to the user who runs this",
                              path, (long)st->st_uid);
    if ((st->st_mode & others) != 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: its mode is %04o, by which others could read or change the "
                              "secrets in it; run chmod 600 on it",
                              path, (unsigned)(st->st_mode & 07777));
    if (st->st_size > FILE_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "%s: it has more than %d bytes", path, FILE_MAX);
    return 0;
}

/* Reads at most `size` bytes, of a file that may change meanwhile. */
static ssize_t keyring_file_read(int fd, char *buf, size_t size) {
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

static int keyring_fd_load(int fd, const char *path, struct idem_keyring **ret,
                           struct idem_error *err) {
    struct stat st;
    ssize_t len;
    char *text;
    int rc;

    if (fstat(fd, &st) != 0)
        return idem_error_set(err, IDEM_E_INVALID, "%s: %s", path, strerror(errno));
    if ((rc = keyring_mode_check(path, &st, err)) != 0)
        return rc;
    text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "%s: no memory to read it", path);
    len = keyring_file_read(fd, text, (size_t)st.st_size);
    rc = len < 0 ? idem_error_set(err, IDEM_E_INVALID, "%s: %s", path, strerror(errno))
                 : idem_keyring_parse(path, text, (size_t)len, ret, err);
    OPENSSL_cleanse(text, (size_t)st.st_size + 1);
    free(text);
    return rc;
}

int idem_keyring_load(const char *path, struct idem_keyring **ret, struct idem_error *err) {
    /* a pipe without a writer must not block the open */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int rc;

    if (fd < 0)
        return idem_error_set(err, IDEM_E_INVALID, "%s: %s", path, strerror(errno));
    rc = keyring_fd_load(fd, path, ret, err);
    close(fd);
    return rc;
}

void idem_keyring_free(struct idem_keyring *keyring) {
    if (keyring == NULL)
        return;
    for (size_t i = 0; i < keyring->n; i++)
        EVP_PKEY_free(keyring->keys[i].pkey);
    for (size_t i = 0; i < ALGS; i++)
        EVP_PKEY_free(keyring->decoys[i].pkey);
    if (keyring->keys != NULL)
        OPENSSL_cleanse(keyring->keys, keyring->room * sizeof(*keyring->keys));
    free(keyring->keys);
    OPENSSL_cleanse(keyring, sizeof(*keyring));
    free(keyring);
}

/* Use of the keys. */

static bool key_is(const struct key *key, struct idem_http_text id) {
    return idem_same(key->id, key->id_len, id.at, id.len);
}

/* Compares all keys: an early end would reveal that the id exists, and where. */
bool idem_keyring_knows(const struct idem_keyring *keyring, struct idem_http_text id) {
    bool known = false;

    for (size_t i = 0; i < keyring->n; i++)
        known |= key_is(&keyring->keys[i], id);
    return known;
}

static bool key_equals(const struct key *a, const struct key *b) {
    if (a->alg != b->alg || !key_is(a, (struct idem_http_text){b->id, b->id_len}))
        return false;
    if (a->alg == IDEM_SIGN_ED25519)
        return EVP_PKEY_eq(a->pkey, b->pkey) == 1;
    return a->block_len == b->block_len && CRYPTO_memcmp(a->block, b->block, a->block_len) == 0;
}

bool idem_keyring_shares_key(const struct idem_keyring *a, const struct idem_keyring *b) {
    for (size_t i = 0; i < a->n; i++)
        for (size_t j = 0; j < b->n; j++)
            if (key_equals(&a->keys[i], &b->keys[j]))
                return true;
    return false;
}

static bool keyring_hmac_make(const unsigned char *secret, size_t len, struct idem_http_text text,
                              unsigned char out[HMAC_LEN]) {
    return HMAC(EVP_sha256(), secret, (int)len, (const unsigned char *)text.at, text.len, out,
                NULL) != NULL;
}

static bool key_verify_ed25519(const struct key *key, struct idem_http_text text,
                               const unsigned char *signature, size_t len) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key->pkey) == 1 &&
              EVP_DigestVerify(ctx, signature, len, (const unsigned char *)text.at, text.len) == 1;

    EVP_MD_CTX_free(ctx);
    return ok;
}

/* Failures must not stay in the host program's error queue, where the host would take them for
   its own. */
static bool key_verify(const struct key *key, struct idem_http_text text,
                       const unsigned char *signature, size_t len) {
    unsigned char made[HMAC_LEN] = {0};
    bool ok;

    ERR_set_mark();
    if (key->alg == IDEM_SIGN_ED25519)
        ok = key_verify_ed25519(key, text, signature, len);
    else
        ok = keyring_hmac_make(key->block, key->block_len, text, made) && len == HMAC_LEN &&
             CRYPTO_memcmp(made, signature, HMAC_LEN) == 0;
    OPENSSL_cleanse(made, sizeof(made));
    ERR_pop_to_mark();
    return ok;
}

bool idem_keyring_verify(const struct idem_keyring *keyring, struct idem_http_text id,
                         enum idem_sign_alg alg, struct idem_http_text text,
                         const unsigned char *signature, size_t len) {
    size_t tried[ALGS] = {0};
    bool good = false;

    for (size_t i = 0; i < keyring->n; i++) {
        const struct key *key = &keyring->keys[i];

        if (!key_is(key, id) || (alg != 0 && key->alg != alg))
            continue;
        tried[key->alg]++;
        if (key_verify(key, text, signature, len))
            good = true;
    }
    for (size_t i = 0; !good && i < ALGS; i++)
        for (; tried[i] < keyring->most[i]; tried[i]++)
            (void)key_verify(&keyring->decoys[i], text, signature, len);
    return good;
}

bool idem_keyring_id(const struct idem_keyring *keyring, size_t at, struct idem_http_text *ret) {
    if (at >= keyring->n)
        return false;
    *ret = (struct idem_http_text){keyring->keys[at].id, keyring->keys[at].id_len};
    return true;
}

/* The four ways to confuse a secret with its text. */
#define MISREAD_MAX IDEM_HEX_TEXT(SECRET_MAX)
static bool key_secret_misread(const struct key *key, int way, unsigned char out[MISREAD_MAX],
                               size_t *ret_len) {
    const char *text = (const char *)key->secret;

    switch (way) {
    case 0:
        return idem_base64_decode(text, key->secret_len, out, MISREAD_MAX, ret_len);
    case 1:
        return idem_hex_decode(text, key->secret_len, out, MISREAD_MAX, ret_len);
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
        ok = key_secret_misread(key, way, secret, &secret_len) && secret_len > 0 &&
             keyring_hmac_make(secret, secret_len, text, made) &&
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

static const struct key *keyring_find_signing(const struct idem_keyring *keyring,
                                              struct idem_http_text id) {
    for (size_t i = 0; i < keyring->n; i++)
        if (keyring->keys[i].signs && key_is(&keyring->keys[i], id))
            return &keyring->keys[i];
    return NULL;
}

enum idem_sign_alg idem_keyring_alg(const struct idem_keyring *keyring, struct idem_http_text id) {
    const struct key *key = keyring_find_signing(keyring, id);

    return key != NULL ? key->alg : 0;
}

static bool key_sign_ed25519(const struct key *key, struct idem_http_text text,
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
    const struct key *key = keyring_find_signing(keyring, id);
    char quoted[IDEM_QUOTE_TEXT];
    bool ok;

    if (key == NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "there is no key of id %s that can sign: hmac-sha256, or "
                              "ed25519-secret",
                              idem_error_quote(id.at, id.len, quoted, sizeof(quoted)));
    ok = key->alg == IDEM_SIGN_ED25519 ? key_sign_ed25519(key, text, out)
                                       : keyring_hmac_make(key->block, key->block_len, text, out);
    if (!ok)
        return idem_error_set(err, IDEM_E_NOMEM, "the signature could not be made");
    *ret_len = key->alg == IDEM_SIGN_ED25519 ? IDEM_SIGNATURE_MAX : HMAC_LEN;
    return 0;
}
