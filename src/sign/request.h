/*
 * A C caller's request, as both ends read it.
 */
#ifndef IDEM_SIGN_REQUEST_H
#define IDEM_SIGN_REQUEST_H

#include "sign/sign.h"

/* Borrows from `from`. Hashes the body; *ret_headers is freed by the caller, with room for `more`
   behind the request's own. On failure nothing is to be freed. */
int idem_request_read(const struct idem_request *from, size_t more,
                      unsigned char sha256[IDEM_HASH_LEN], struct idem_http_header **ret_headers,
                      struct idem_sign_request *ret, struct idem_error *err);

#endif
