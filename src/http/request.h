/*
 * A request as the JSON object that key expressions read:
 *
 *     {method, path, query, headers, cookies, body, user}
 *
 * query    an object of decoded parameters; one that is repeated is an array.
 *          null where a parameter's escapes or UTF-8 cannot be read, so that an
 *          expression that wants one fails instead of reading another value.
 * headers  an object; names in lower case, repeated ones joined by ", " (Cookie
 *          by "; "). A value that is not UTF-8 is read as ISO 8859-1.
 * cookies  an object of the pairs of Cookie (RFC 6265); values as they stand,
 *          quotes and escapes too; repeated ones are an array.
 * body     JSON: its value. A form: as query. Else its text, or null if that is
 *          not UTF-8. null if there is none.
 * user     the scope, or null.
 */
#ifndef IDEM_HTTP_REQUEST_H
#define IDEM_HTTP_REQUEST_H

#include "http/field.h"
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
 * Everything is borrowed, and must stay while *ret is used; the rest is in the
 * arena. 0, IDEM_E_NOMEM, or IDEM_E_INVALID: the body says that it is JSON and
 * is none, or the arena's limit is reached; the text tells, and shows nothing of
 * the request. *ret is untouched then.
 */
int idem_http_request_json(const struct idem_http_request *request, struct idem_arena *arena,
                           struct idem_json *ret, struct idem_error *err);

#endif
