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
#define CLI_MISTAKE_TEXT 256
bool cli_mistake_find(const struct cli_wrong *wrong, char out[CLI_MISTAKE_TEXT]);

/* Explains missing or unreadable parts in a sentence; NULL if it cannot. */
const char *cli_mistake_parts(const struct idem_signer *signer,
                              const struct idem_sign_request *request);

#endif
