/*
 * A request as the JSON object that key expressions read:
 *
 *     {method, path, query, headers, cookies, body, user}
 *
 * query    an object of decoded parameters; a repeated parameter is an array.
 *          null if a parameter has an invalid escape or invalid UTF-8, so that an
 *          expression that needs one fails instead of reading another value.
 * headers  an object; names in lower case, repeated ones joined by ", " (Cookie
 *          by "; "). A value that is not UTF-8 is read as ISO 8859-1.
 * cookies  an object of the pairs of Cookie (RFC 6265); values unchanged,
 *          including quotes and escapes; repeated ones are an array.
 * body     JSON: its value. A form: as query. Otherwise its text, or null if it
 *          is not UTF-8. null without a body.
 * user     the scope, or null.
 */
#ifndef IDEM_HTTP_HTTP_REQUEST_H
#define IDEM_HTTP_HTTP_REQUEST_H

#include "http/http_field.h"
#include "json/json.h"

struct idem_http_request {
    struct idem_http_text method, path;
    struct idem_http_text query; /* without the question mark */
    const struct idem_http_header *headers;
    size_t headers_n;
    struct idem_http_text body;
    struct idem_http_text user; /* .at is NULL: scope none */
};

/*
 * *ret borrows from the request, which must outlive it; the rest is in the arena. 0, IDEM_E_NOMEM,
 * or IDEM_E_INVALID: the body is declared as JSON and is not, or the arena's limit is reached; the
 * text explains the fault and shows nothing of the request. *ret is untouched on failure.
 */
int idem_http_request_json(const struct idem_http_request *request, struct idem_arena *arena,
                           struct idem_json *ret, struct idem_error *err);

#endif
