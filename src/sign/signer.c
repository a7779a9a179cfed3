/*
 * Parses the rules from words: the same in directives, on the command line and in C.
 */
#include <stdlib.h>
#include <string.h>

#include "base/chars.h"
#include "base/error.h"
#include "sign/sign.h"

#define WINDOW_MIN_MS 1000
#define WINDOW_MAX_MS (24 * 3600 * (int64_t)1000)

/* clang-format off */
const struct idem_word idem_words_sign_form[] = {
    {"rfc9421", IDEM_SIGN_RFC9421},
    {"classic", IDEM_SIGN_CLASSIC},
    {NULL, 0},
};

const struct idem_word idem_words_sequence[] = {
    {"off", IDEM_SEQUENCE_OFF},
    {"increasing", IDEM_SEQUENCE_INCREASING},
    {"consecutive", IDEM_SEQUENCE_CONSECUTIVE},
    {NULL, 0},
};

static const struct idem_word words_proof[] = {
    {"good", IDEM_PROOF_GOOD},
    {"signature_incomplete", IDEM_PROOF_INCOMPLETE},
    {"signature_stale", IDEM_PROOF_STALE},
    {"signature_wrong", IDEM_PROOF_WRONG},
    {"nonce_reused", IDEM_PROOF_REUSED},
    {NULL, 0},
};

static const char *const derived[] = {
    "@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query", NULL,
};
/* clang-format on */

const char *idem_proof_name(enum idem_proof proof) {
    return idem_word_name(words_proof, (int)proof);
}

const struct idem_sign_form_ops *idem_sign_form(enum idem_sign_form form) {
    return form == IDEM_SIGN_CLASSIC ? &idem_sign_classic : &idem_sign_rfc9421;
}

static bool signer_name_is_valid(const struct idem_signer *signer, struct idem_http_text name) {
    if (name.at[0] != '@')
        return idem_http_is_token(name);
    if (signer->form == IDEM_SIGN_CLASSIC)
        return false;
    for (const char *const *known = derived; *known != NULL; known++)
        if (idem_http_is(name, *known))
            return true;
    return false;
}

static int signer_name_add(struct idem_signer *signer, struct idem_http_text name,
                           struct idem_error *err) {
    char quoted[IDEM_QUOTE_TEXT];

    if (!signer_name_is_valid(signer, name))
        return idem_error_set(err, IDEM_E_INVALID, "headers: %s is no header's name%s",
                              idem_error_quote(name.at, name.len, quoted, sizeof(quoted)),
                              signer->form == IDEM_SIGN_CLASSIC
                                  ? ""
                                  : ", and none of @method, @target-uri, @authority, @scheme, "
                                    "@request-target, @path, @query");
    for (size_t i = 0; i < signer->names_n; i++)
        if (idem_http_equal(signer->names[i], name))
            return 0;
    if (signer->names_n == IDEM_SIGN_NAMES_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "headers: more than %d names",
                              IDEM_SIGN_NAMES_MAX);
    signer->names[signer->names_n++] = name;
    return 0;
}

static int signer_names_parse(struct idem_signer *signer, const char *headers,
                              struct idem_error *err) {
    signer->text = strdup(headers);
    if (signer->text == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a signer");
    for (char *at = signer->text; *at != '\0';) {
        struct idem_http_text name = {at, strcspn(at, " \t,")};
        int rc;

        if (name.len == 0) {
            at++;
            continue;
        }
        for (size_t i = 0; i < name.len; i++)
            at[i] = idem_lower(at[i]);
        at += name.len;
        if ((rc = signer_name_add(signer, name, err)) != 0)
            return rc;
    }
    return 0;
}

static int signer_rules_parse(struct idem_signer *signer, const struct idem_sign_rules *rules,
                              struct idem_error *err) {
    int rc;

    signer->form = rules->form != 0 ? rules->form : IDEM_SIGN_RFC9421;
    signer->sequence = rules->sequence != 0 ? rules->sequence : IDEM_SEQUENCE_OFF;
    signer->window_ms = rules->window_ms != 0 ? rules->window_ms : IDEM_SIGN_WINDOW_MS;
    signer->longest_ms = signer->window_ms;
    if (signer->form != IDEM_SIGN_RFC9421 && signer->form != IDEM_SIGN_CLASSIC)
        return idem_error_set(err, IDEM_E_INVALID, "form is neither rfc9421 nor classic");
    if ((unsigned)signer->sequence > IDEM_SEQUENCE_CONSECUTIVE)
        return idem_error_set(err, IDEM_E_INVALID,
                              "sequence must be off, increasing or consecutive");
    if (signer->window_ms < WINDOW_MIN_MS || signer->window_ms > WINDOW_MAX_MS)
        return idem_error_set(err, IDEM_E_INVALID, "window: allowed are 1s to 1d");
    if (rules->headers != NULL && (rc = signer_names_parse(signer, rules->headers, err)) != 0)
        return rc;
    if (rules->secret_file == NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "secret_file is missing: the file that has the secrets");
    return idem_keyring_load(rules->secret_file, &signer->keyring, err);
}

int idem_signer_new(const struct idem_sign_rules *rules, struct idem_signer **ret,
                    struct idem_error *err) {
    struct idem_signer *signer;
    int rc = idem_need(rules, err) ?: idem_need(ret, err);

    if (rc != 0)
        return rc;
    signer = calloc(1, sizeof(*signer));
    if (signer == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a signer");
    if ((rc = signer_rules_parse(signer, rules, err)) != 0) {
        idem_signer_free(signer);
        return rc;
    }
    *ret = signer;
    return 0;
}

void idem_signer_free(struct idem_signer *signer) {
    if (signer == NULL)
        return;
    idem_keyring_free(signer->keyring);
    free(signer->text);
    free(signer);
}

/* Functions that both forms use. */

struct idem_http_text idem_sign_header(const struct idem_sign_request *request,
                                       struct idem_http_text name, size_t *ret_n) {
    struct idem_http_text found = {NULL, 0};

    *ret_n = 0;
    for (size_t i = 0; i < request->headers_n; i++)
        if (idem_http_same(request->headers[i].name, name)) {
            found = idem_http_trim(request->headers[i].value);
            (*ret_n)++;
        }
    return found;
}

void idem_sign_headers(const struct idem_sign_request *request, struct idem_http_text name,
                       struct idem_out *out, size_t *ret_n) {
    *ret_n = 0;
    for (size_t i = 0; i < request->headers_n; i++) {
        struct idem_http_text value;

        if (!idem_http_same(request->headers[i].name, name))
            continue;
        value = idem_http_trim(request->headers[i].value);
        if ((*ret_n)++ > 0)
            idem_out_text(out, ", ");
        idem_out_put(out, value.at, value.len);
    }
}

bool idem_sign_is_line(struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] <= 0x20 || text.at[i] == 0x7f)
            return false;
    return true;
}

bool idem_sign_number(struct idem_sign_parts *parts) {
    struct idem_http_text nonce = {parts->nonce, parts->nonce_len};

    return nonce.len > 0 && nonce.at[0] != '0' && idem_is_digit(nonce.at[0]) &&
           idem_http_number(nonce, 1, INT64_MAX, &parts->number);
}
