/*
 * `idem sign`: prints the headers of a signed request.
 */
#include <string.h>

#include "cli/sign/request_argument.h"

static int command_sign_options_read(const struct cli_values *values, struct idem_sign_with *ret) {
    *ret = (struct idem_sign_with){.key_id = values->key_id, .nonce = values->nonce};
    if (ret->key_id == NULL)
        return cli_usage("sign", "--key-id ID is missing: whose secret signs");
    if (values->time == NULL)
        return CLI_OK;
    if (strcmp(values->time, "none") == 0) {
        ret->time_ms = IDEM_NONE;
        return CLI_OK;
    }
    return cli_request_time(values->time, "sign", "time", &ret->time_ms);
}

/* Prints headers as curl reads them from a file: "Name;" is a header without a value, while "Name:"
   would remove it. */
static void command_sign_fields_print(const struct idem_field *fields, size_t n) {
    for (size_t i = 0; i < n; i++)
        printf(fields[i].value[0] != '\0' ? "%s: %s\n" : "%s;\n", fields[i].name, fields[i].value);
}

static int command_sign_request(const struct cli_values *values, const struct idem_signer *signer,
                                const struct idem_request *request) {
    struct idem_signature signature;
    struct idem_sign_with with;
    struct idem_error err;
    int status = command_sign_options_read(values, &with);

    if (status != CLI_OK)
        return status;
    if (idem_sign_request(signer, &with, request, &signature, &err) < 0)
        return cli_message_error("sign", &err);
    command_sign_fields_print(request->fields, request->fields_n);
    command_sign_fields_print(signature.fields, signature.fields_n);
    if (values->show) {
        cli_message("sign: what was signed:");
        cli_lines_print(signature.signed_text, stderr);
    }
    idem_signature_release(&signature);
    return cli_flush();
}

static int command_sign_run(const struct cli_values *values) {
    struct idem_signer *signer = NULL;
    struct cli_request request;
    int status = cli_request_read(values, "sign", &request);

    if (status == CLI_OK)
        status = cli_request_signer(values, "sign", &signer);
    if (status == CLI_OK)
        status = command_sign_request(values, signer, &request.request);
    idem_signer_free(signer);
    cli_request_release(&request);
    return status;
}

static const char *const sign_options[] = {"key-id", "secret-file", "form",    "method",   "header",
                                           "data",   "data-file",   "headers", "sequence", "nonce",
                                           "time",   "show-signed", "help",    NULL};

const struct cli_command cli_sign = {
    .name = "sign",
    .summary = "sign a request: the headers to send with it",
    .synopsis = "--key-id ID --secret-file FILE [OPTIONS] URL [-d BODY]",
    .text = "Prints the headers of a signed request, those of -H in front, one to a line, as\n"
            "`curl -H @-` takes them. Where there is a body, the method is POST. The file of\n"
            "secrets has a key to a line, `ID hmac-sha256 base64:SECRET`, and only its owner may\n"
            "read it; sign.md has all about it. Send what was signed: the same URL and body.\n",
    .after = "  idem sign --key-id shop-1 --secret-file keys -d '{\"item\":7}' \\\n"
             "    http://127.0.0.1:8080/orders |\n"
             "    curl -H @- -d '{\"item\":7}' http://127.0.0.1:8080/orders\n",
    .options = sign_options,
    .run = command_sign_run,
};
