/*
 * A C caller's request, as signing and verifying read it.
 */
#ifndef IDEM_SIGN_SIGN_REQUEST_H
#define IDEM_SIGN_SIGN_REQUEST_H

#include "sign/sign.h"

/* Borrows from `from`. Hashes the body. The caller frees *ret_headers, which has room for `more`
   headers after the request's own. On failure there is nothing to free. */
int idem_request_read(const struct idem_request *from, size_t more,
                      unsigned char sha256[IDEM_HASH_LEN], struct idem_http_header **ret_headers,
                      struct idem_sign_request *ret, struct idem_error *err);

#endif
