/*
 * Parses --key of `idem consume`: the name of a header, the broker's message id, or an expression.
 * Fails if the value is empty.
 */
#include <string.h>

#include "cli/consume/command_consume.h"

int consume_key_parse(const char *text, struct consume_key *ret) {
    static const char header[] = "header:";

    *ret = (struct consume_key){.kind = QUEUE_KEY_EXPRESSION, .expr = text};
    if (strcmp(text, "message-id") == 0)
        *ret = (struct consume_key){.kind = QUEUE_KEY_ID};
    else if (strncmp(text, header, strlen(header)) == 0)
        *ret = (struct consume_key){.kind = QUEUE_KEY_HEADER, .header = text + strlen(header)};
    if (text[0] != '\0' && (ret->header == NULL || ret->header[0] != '\0'))
        return CLI_OK;
    cli_say("consume: --key: %s is missing (see: idem help consume)",
            ret->header == NULL ? "the expression"
                                : "the header's name, as in "
                                  "header:Idempotency-Key,");
    return CLI_USAGE;
}
