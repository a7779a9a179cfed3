/*
 * Converts a C caller's request. Refuses arguments that are not a valid request.
 */
#include "sign/sign_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"

static int request_need(const struct idem_request *from, struct idem_error *err) {
    if (from->method == NULL || from->target == NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "a request needs a method and a target (\"/path?query\")");
    if (!idem_http_is_token(idem_http_text_of(from->method)))
        return idem_error_set(err, IDEM_E_INVALID, "the request's method is not a method of HTTP");
    if (from->target[0] != '/' || !idem_sign_is_line(idem_http_text_of(from->target)))
        return idem_error_set(err, IDEM_E_INVALID,
                              "the request's target must begin with a slash, and have neither "
                              "blanks nor control characters");
    if (from->body == NULL && from->body_len > 0)
        return idem_error_set(err, IDEM_E_INVALID, "the request's body has a length and no bytes");
    if (from->fields == NULL && from->fields_n > 0)
        return idem_error_set(err, IDEM_E_INVALID, "fields_n is %zu, and fields is NULL",
                              from->fields_n);
    for (size_t i = 0; i < from->fields_n; i++)
        if (from->fields[i].name == NULL || from->fields[i].value == NULL ||
            !idem_http_is_token(idem_http_text_of(from->fields[i].name)) ||
            strpbrk(from->fields[i].value, "\r\n") != NULL)
            return idem_error_set(err, IDEM_E_INVALID,
                                  "field %zu of the request has no name, no value, or one that no "
                                  "header can have",
                                  i + 1);
    return 0;
}

static void request_target_split(const char *target, struct idem_sign_request *ret) {
    const char *mark = strchr(target, '?');

    ret->path =
        (struct idem_http_text){target, mark != NULL ? (size_t)(mark - target) : strlen(target)};
    if (mark != NULL)
        ret->query = idem_http_text_of(mark + 1);
}

int idem_request_read(const struct idem_request *from, size_t more,
                      unsigned char sha256[IDEM_HASH_LEN], struct idem_http_header **ret_headers,
                      struct idem_sign_request *ret, struct idem_error *err) {
    struct idem_sign_request made = {.sha256 = sha256, .headers_n = from->fields_n};
    struct idem_http_header *headers;
    int rc = request_need(from, err);

    if (rc != 0)
        return rc;
    made.method = idem_http_text_of(from->method);
    made.scheme = idem_http_text_of(from->scheme != NULL ? from->scheme : "https");
    made.authority = idem_http_text_of(from->authority);
    made.has_body = from->body_len > 0;
    request_target_split(from->target, &made);
    headers = calloc(from->fields_n + more + 1, sizeof(*headers));
    if (headers == NULL ||
        idem_sha256((struct idem_bytes){from->body, from->body_len}, sha256) != 0) {
        free(headers);
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a request");
    }
    for (size_t i = 0; i < from->fields_n; i++)
        headers[i] = (struct idem_http_header){idem_http_text_of(from->fields[i].name),
                                               idem_http_text_of(from->fields[i].value)};
    made.headers = headers;
    *ret_headers = headers;
    *ret = made;
    return 0;
}
