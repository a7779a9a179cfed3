/*
 * Any bytes as the texts of a problem: the JSON is valid, and its detail is the
 * text if that is UTF-8; the page has the same markup as without the texts, and
 * both fill exactly the size that they announced.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "http/http_problem.h"
#include "json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t markup(const struct idem_http_problem *problem) {
    size_t len = idem_http_problem_html(problem, NULL, 0), n = 0;
    char *page = malloc(len);

    assert(idem_http_problem_html(problem, page, len) == len);
    assert(idem_utf8_valid(page, len));
    for (size_t i = 0; i < len; i++)
        n += page[i] == '<' || page[i] == '>' || page[i] == '"' || page[i] == '\'';
    free(page);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_http_text text = {(const char *)data, size};
    struct idem_http_problem problem = {.detail = text, .reason = text, .key_hash = text};
    struct idem_http_problem plain = {
        .detail = {"x", size != 0}, .reason = {"x", size != 0}, .key_hash = {"x", size != 0}};
    const struct idem_json *detail;
    struct idem_arena arena;
    struct idem_json json;
    size_t len;
    char *out;

    if (size > 0)
        problem.kind = plain.kind = (enum idem_http_problem_kind)(data[0] % IDEM_HTTP_PROBLEMS);
    len = idem_http_problem_json(&problem, NULL, 0);
    out = malloc(len);
    assert(idem_http_problem_json(&problem, out, len) == len);
    idem_arena_init(&arena, (size_t)16 << 20);
    assert(idem_json_parse(out, len, &arena, &json, NULL) == 0);
    detail = idem_json_get(&json, "detail", 6);
    if (size == 0)
        assert(detail == NULL);
    else if (idem_utf8_valid(text.at, size))
        assert(detail->n == size && memcmp(detail->at.text, data, size) == 0);
    idem_arena_free(&arena);
    free(out);
    assert(markup(&problem) == markup(&plain));
    return 0;
}
