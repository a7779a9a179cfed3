/*
 * Explains a wrong signature: tries the usual mistakes one at a time, and names the first that
 * would make it right.
 */
#ifndef IDEM_CLI_SIGN_SIGN_DIAGNOSE_H
#define IDEM_CLI_SIGN_SIGN_DIAGNOSE_H

#include "sign/sign.h"

/* A request whose signature or digest is wrong. */
struct cli_wrong {
    const struct idem_signer *signer;
    const struct idem_sign_request *request;
    const struct idem_sign_parts *parts;
    const struct idem_request *sent; /* the same request, with its body */
};

/* Writes the rest of "It was signed for %s."; false if no mistake matches. */
#define SIGN_DIAGNOSE_TEXT 256
bool sign_diagnose_find(const struct cli_wrong *wrong, char out[SIGN_DIAGNOSE_TEXT]);

/* Explains missing or unreadable parts in a sentence; NULL if it cannot. */
const char *sign_diagnose_parts(const struct idem_signer *signer,
                                const struct idem_sign_request *request);

#endif
