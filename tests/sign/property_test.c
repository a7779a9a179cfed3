/*
 * A property of the signed text: two requests that differ have different texts
 * in both forms; in the classic form they have the same text only if they
 * differ in nothing but the order of parameters with different names. Requests
 * are made of few characters, mostly separators, so that many nearly coincide.
 */
#include "rig.h"

#define ROUNDS 40000
#define PART_MAX 12

struct made {
    char method[PART_MAX], path[PART_MAX], query[PART_MAX], time[PART_MAX], nonce[PART_MAX];
    char key_id[PART_MAX], header[PART_MAX];
    bool has_query;
    unsigned char hash[IDEM_HASH_LEN];
};

static uint64_t seed = 88172645463325252u;

static uint64_t draw(uint64_t n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % n;
}

static void fill(char *out, const char *of, size_t max) {
    size_t n = draw(max + 1);

    for (size_t i = 0; i < n; i++)
        out[i] = of[draw(strlen(of))];
    out[n] = '\0';
}

static void part_make(struct made *made, uint64_t which) {
    switch (which) {
    case 0:
        fill(made->method, "GP", 2);
        break;
    case 1:
        made->path[0] = '/';
        fill(made->path + 1, "/a1=&", 3);
        break;
    case 2:
        made->has_query = draw(4) != 0;
        fill(made->query, "ab=&?/1", 7);
        break;
    case 3:
        fill(made->time, "1", 2);
        break;
    case 4:
        fill(made->nonce, "1a", 2);
        break;
    case 5:
        fill(made->key_id, "1a:", 2);
        break;
    case 6:
        fill(made->header, "1a: /", 3);
        break;
    default:
        made->hash[0] = (unsigned char)draw(2);
    }
}

static char *text_of(const struct idem_signer *signer, const struct made *made) {
    struct idem_http_header header = {IDEM_HTTP_TEXT("x-signed"),
                                      {made->header, strlen(made->header)}};
    struct idem_sign_request request = {
        .method = {made->method, strlen(made->method)},
        .scheme = IDEM_HTTP_TEXT("https"),
        .authority = IDEM_HTTP_TEXT("shop.test"),
        .path = {made->path, strlen(made->path)},
        .query = {made->has_query ? made->query : NULL, made->has_query ? strlen(made->query) : 0},
        .headers = &header,
        .headers_n = 1,
        .sha256 = made->hash,
    };
    struct idem_sign_parts parts = {
        .key_id_len = strlen(made->key_id),
        .nonce_len = strlen(made->nonce),
        .timestamp = {made->time, strlen(made->time)},
        .components = IDEM_HTTP_TEXT("\"@method\" \"@path\" \"@query\" \"@request-target\" "
                                     "\"x-signed\""),
        .parameters = IDEM_HTTP_TEXT(";nonce=\"n\""),
    };
    char room[IDEM_SIGN_DETAIL], *text = NULL;
    const char *detail;
    size_t len;

    memcpy(parts.key_id, made->key_id, sizeof(made->key_id));
    memcpy(parts.nonce, made->nonce, sizeof(made->nonce));
    CHECK_INT(idem_sign_text(signer, &request, &parts, &text, &len, &detail, room), 0);
    return text;
}

/* Sorts the pairs of the query by name, with exchanges of neighbours. */
static void query_sort(const char *query, char out[PART_MAX]) {
    bool moved = true;

    snprintf(out, PART_MAX, "%s", query);
    while (moved) {
        moved = false;
        for (char *a = out; !moved;) {
            size_t m = strcspn(a, "&");
            char *b = a + m + 1, name_a[PART_MAX] = "", name_b[PART_MAX] = "", room[PART_MAX];
            size_t n;

            if (a[m] == '\0')
                break;
            n = strcspn(b, "&");
            memcpy(name_a, a, strcspn(a, "=&"));
            memcpy(name_b, b, strcspn(b, "=&"));
            if (strcmp(name_a, name_b) > 0) {
                memcpy(room, a, m);
                memmove(a, b, n);
                a[n] = '&';
                memcpy(a + n + 1, room, m);
                moved = true;
            }
            a = b;
        }
    }
}

static bool trimmed_same(const char *a, const char *b) {
    struct idem_http_text x = idem_http_trim((struct idem_http_text){a, strlen(a)});
    struct idem_http_text y = idem_http_trim((struct idem_http_text){b, strlen(b)});

    return x.len == y.len && memcmp(x.at, y.at, x.len) == 0;
}

static bool same_but_query(const struct made *a, const struct made *b) {
    return strcmp(a->method, b->method) == 0 && strcmp(a->path, b->path) == 0 &&
           trimmed_same(a->header, b->header) && a->has_query == b->has_query;
}

static bool same_for_classic(const struct made *a, const struct made *b) {
    char x[PART_MAX], y[PART_MAX];

    query_sort(a->query, x);
    query_sort(b->query, y);
    return same_but_query(a, b) && (!a->has_query || strcmp(x, y) == 0) &&
           strcmp(a->time, b->time) == 0 && strcmp(a->nonce, b->nonce) == 0 &&
           strcmp(a->key_id, b->key_id) == 0 && a->hash[0] == b->hash[0];
}

static bool same_for_rfc9421(const struct made *a, const struct made *b) {
    return same_but_query(a, b) && (!a->has_query || strcmp(a->query, b->query) == 0);
}

static void property(enum idem_sign_form form,
                     bool (*same)(const struct made *a, const struct made *b)) {
    struct idem_signer *signer =
        signer_of(KEYS, (struct idem_sign_rules){.form = form, .headers = "x-signed"});
    size_t met = 0;

    for (size_t i = 0; i < ROUNDS; i++) {
        struct made a = {0}, b;
        char *x, *y;

        for (uint64_t which = 0; which < 8; which++)
            part_make(&a, which);
        b = a;
        for (uint64_t n = 1 + draw(2); n > 0; n--)
            part_make(&b, draw(8));
        x = text_of(signer, &a);
        y = text_of(signer, &b);
        if ((strcmp(x, y) == 0) != same(&a, &b)) {
            fprintf(stderr, "# %zu:\n%s\n# and:\n%s\n", i, x, y);
            exit(1);
        }
        met += strcmp(x, y) == 0;
        free(x);
        free(y);
    }
    CHECK(met > ROUNDS / 100); /* otherwise the requests differ too much to prove anything */
    idem_signer_free(signer);
}

TEST(two_requests_have_one_classic_text_only_if_parameters_changed_places) {
    property(IDEM_SIGN_CLASSIC, same_for_classic);
}

TEST(two_requests_never_have_one_signature_base) {
    property(IDEM_SIGN_RFC9421, same_for_rfc9421);
}

TEST_MAIN
