/*
 * Why a signature is wrong: tries the customary mistakes, one at a time, and names the one with
 * which it would be right.
 */
#ifndef IDEM_CLI_MISTAKE_H
#define IDEM_CLI_MISTAKE_H

#include "sign/sign.h"

/* A request whose signature, or whose digest, is wrong. */
struct cli_wrong {
    const struct idem_signer *signer;
    const struct idem_sign_request *request;
    const struct idem_sign_parts *parts;
    const struct idem_request *sent; /* the same request, with its body */
};

/* "It was signed for %s."; false if it is none of them. */
#define CLI_MISTAKE_TEXT 256
bool cli_mistake_find(const struct cli_wrong *wrong, char out[CLI_MISTAKE_TEXT]);

/* Of parts that are missing or cannot be read: a sentence, or NULL. */
const char *cli_mistake_parts(const struct idem_signer *signer,
                              const struct idem_sign_request *request);

#endif
