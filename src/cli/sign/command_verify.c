/*
 * `idem verify`: reports each check of a signed request, in the order of the checks, and why one
 * fails. It shows neither a secret nor the signature that would have been right.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/sign/request_argument.h"
#include "cli/sign/sign_diagnose.h"
#include "cli/time_argument.h"
#include "core/handle.h"
#include "sign/sign_request.h"
#include "json/json_out.h"

/* The results of all checks. */
struct report {
    const struct cli_values *values;
    const struct idem_signer *signer;
    const struct idem_request *sent;
    struct idem_sign_request request;
    struct idem_sign_checked checked;
    enum idem_proof proof; /* includes the check of the nonce */
    int64_t now_ms;
    const char *digest; /* the error in the body's digest, or NULL */
    bool fits;          /* the signature is right */
    bool spent;         /* the store has checked the nonce */
    char nonce[IDEM_SIGN_DETAIL];
    char mistake[SIGN_DIAGNOSE_TEXT];
};

/* Checks. */

static bool report_is_complete(const struct report *report) {
    return report->checked.proof != IDEM_PROOF_INCOMPLETE;
}

/* Runs even after a failed check: a request that is too old may also have a wrong signature. */
static void report_signature_check(struct report *report) {
    const struct idem_sign_parts *parts = &report->checked.parts;
    struct cli_wrong wrong = {report->signer, &report->request, parts, report->sent};
    bool incomplete;

    report->digest =
        idem_sign_form(report->signer->form)->body(&report->request, parts, &incomplete);
    report->fits = idem_keyring_verify(report->signer->keyring, idem_sign_parts_id(parts),
                                       parts->alg, idem_http_text_of(report->checked.text),
                                       parts->signature, parts->signature_len);
    if (report->digest != NULL || !report->fits)
        (void)sign_diagnose_find(&wrong, report->mistake);
}

/* Checks in the store if the nonce is new. The same step marks it as used. */
static int report_nonce_spend(struct report *report) {
    struct idem_op op = {0};
    char room[IDEM_SIGN_DETAIL];
    const char *detail;
    struct idem_error err;
    int status = CLI_OK, rc;
    struct idem *h = cli_open(report->values, &status);

    if (h == NULL)
        return status;
    rc = idem_nonce_op(report->signer, &report->checked.parts, &op, &err);
    if (rc == 0)
        rc = idem_handle_run(h, &op, NULL, &err);
    idem_close(h);
    if (rc != 0)
        return cli_message_error("verify", &err);
    report->spent = true;
    detail = idem_nonce_answer(report->signer, &op, room);
    if (detail != NULL)
        report->proof = IDEM_PROOF_REUSED;
    snprintf(report->nonce, sizeof(report->nonce), "%s", detail != NULL ? detail : "");
    return CLI_OK;
}

static int report_make(struct report *report) {
    struct idem_error err;

    if (idem_sign_check(report->signer, &report->request, report->now_ms, &report->checked, &err) <
        0)
        return cli_message_error("verify", &err);
    report->proof = report->checked.proof;
    if (report_is_complete(report))
        report_signature_check(report);
    return report->proof == IDEM_PROOF_GOOD && report->values->spend ? report_nonce_spend(report)
                                                                     : CLI_OK;
}

/* Output for people. */

static void command_verify_line(const char *name, const char *text) {
    char printable[1024];

    printf("%-10s %s\n", name, cli_printable(text, printable, sizeof(printable)));
}

static void report_parts_print(const struct report *report) {
    const struct idem_sign_parts *parts = &report->checked.parts;
    struct idem_http_text id = {parts->key_id, parts->key_id_len};
    const char *hint = sign_diagnose_parts(report->signer, &report->request);
    char text[768];

    if (report_is_complete(report))
        snprintf(
            text, sizeof(text), "complete: key id %s%s, nonce %s, %s", parts->key_id,
            idem_keyring_knows(report->signer->keyring, id) ? "" : " (not in the file of secrets)",
            parts->nonce, parts->alg != 0 ? idem_sign_alg_name(parts->alg) : "the key's algorithm");
    else
        snprintf(text, sizeof(text), "incomplete: %s%s%s", report->checked.detail,
                 hint != NULL ? " " : "", hint != NULL ? hint : "");
    command_verify_line("parts", text);
}

static void report_time_print(const struct report *report) {
    const struct idem_sign_parts *parts = &report->checked.parts;
    char when[IDEM_RFC3339_TEXT], ago[IDEM_RFC3339_TEXT], window[IDEM_UNITS_TEXT], text[256];
    int64_t away = parts->time_ms - report->now_ms;

    if (!parts->timed) {
        command_verify_line("time", "none, which a sequence allows");
    } else {
        idem_duration_print(report->signer->window_ms, window, sizeof(window));
        snprintf(text, sizeof(text), "%s: %s, %s; allowed is %s either way",
                 away > report->signer->window_ms || -away > report->signer->window_ms
                     ? "too far away"
                     : "current",
                 idem_rfc3339_print(parts->time_ms, when, sizeof(when)),
                 time_argument_relative(parts->time_ms, report->now_ms, ago, sizeof(ago)), window);
        command_verify_line("time", text);
    }
    if (parts->expires && parts->expires_ms <= report->now_ms) {
        snprintf(text, sizeof(text), "expired: %s, %s",
                 idem_rfc3339_print(parts->expires_ms, when, sizeof(when)),
                 time_argument_relative(parts->expires_ms, report->now_ms, ago, sizeof(ago)));
        command_verify_line("", text);
    }
}

static void report_body_print(const struct report *report) {
    if (report->signer->form == IDEM_SIGN_CLASSIC)
        command_verify_line("body", "its hash is part of what is signed");
    else if (report->digest != NULL)
        command_verify_line("body", "another: it is not the one of Content-Digest");
    else
        command_verify_line(
            "body", report->request.has_body ? "right: it is the one of Content-Digest" : "none");
}

static void report_nonce_print(const struct report *report) {
    if (report->spent)
        command_verify_line("nonce",
                            report->nonce[0] != '\0' ? report->nonce : "new; it is used now");
    else if (report->proof == IDEM_PROOF_GOOD)
        command_verify_line("nonce", "not asked for: --spend asks the store, and uses it");
    else
        command_verify_line(
            "nonce", "not asked for: a request that is refused before leaves its nonce unused");
}

static void report_print(const struct report *report) {
    report_parts_print(report);
    if (report_is_complete(report)) {
        report_time_print(report);
        report_body_print(report);
        command_verify_line("signature", report->fits ? "right" : "wrong");
    }
    report_nonce_print(report);
    command_verify_line("verdict", idem_proof_name(report->proof));
    if (report_is_complete(report) && (!report->fits || report->values->show)) {
        fputs(report->fits ? "\nThe signed text:\n" : "\nThe text to sign:\n", stdout);
        cli_lines_print(report->checked.text, stdout);
    }
    if (report->mistake[0] != '\0') {
        char printable[SIGN_DIAGNOSE_TEXT];

        printf("\nIt was signed for %s.\n",
               cli_printable(report->mistake, printable, sizeof(printable)));
    }
}

/* Output for programs. */

static void report_json(const struct report *report) {
    const struct idem_sign_parts *parts = &report->checked.parts;
    struct json_out json = {stdout, false};
    const char *detail =
        report->spent && report->nonce[0] != '\0' ? report->nonce : report->checked.detail;

    json_out_open(&json, NULL);
    json_out_text(&json, "proof", idem_proof_name(report->proof));
    if (detail != NULL)
        json_out_text(&json, "detail", detail);
    time_argument_json(&json, "now", report->now_ms);
    if (report_is_complete(report)) {
        json_out_text(&json, "key_id", parts->key_id);
        json_out_text(&json, "nonce", parts->nonce);
        time_argument_json(&json, "time", parts->timed ? parts->time_ms : 0);
        json_out_bool(&json, "body", report->digest == NULL);
        json_out_bool(&json, "signature", report->fits);
        json_out_text(&json, "signed", report->checked.text);
    }
    json_out_bool(&json, "nonce_spent", report->spent && report->nonce[0] == '\0');
    if (report->mistake[0] != '\0')
        json_out_text(&json, "signed_for", report->mistake);
    json_out_line(&json);
}

/* The command. */

static int report_run(struct report *report) {
    int status = report_make(report);

    if (status == CLI_OK) {
        if (report->values->json)
            report_json(report);
        else
            report_print(report);
        status = cli_flush();
    }
    idem_sign_checked_release(&report->checked);
    return status == CLI_OK && report->proof != IDEM_PROOF_GOOD ? CLI_MISMATCH : status;
}

static int command_verify_request(const struct cli_values *values, const struct idem_signer *signer,
                                  const struct idem_request *sent) {
    unsigned char sha256[IDEM_HASH_LEN], sha512[IDEM_SHA512_LEN];
    struct report report = {.values = values, .signer = signer, .sent = sent};
    struct idem_http_header *headers;
    struct idem_sha512 sha;
    struct idem_error err;
    int status = CLI_OK;

    report.now_ms = idem_sign_now();
    if (values->now != NULL)
        status = cli_request_time(values->now, "verify", "now", &report.now_ms);
    if (status != CLI_OK)
        return status;
    if (idem_request_read(sent, 0, sha256, &headers, &report.request, &err) < 0)
        return cli_message_error("verify", &err);
    idem_sha512_begin(&sha);
    idem_sha512_add(&sha, sent->body, sent->body_len);
    if (idem_sha512_end(&sha, sha512) == 0)
        report.request.sha512 = sha512;
    status = report_run(&report);
    free(headers);
    return status;
}

static int command_verify_run(const struct cli_values *values) {
    struct idem_signer *signer = NULL;
    struct cli_request request;
    int status;

    if (values->store != NULL && !values->spend)
        return cli_usage("verify", "--store is asked only with --spend, which uses the nonce");
    status = cli_request_read(values, "verify", &request);
    if (status == CLI_OK)
        status = cli_request_signer(values, "verify", &signer);
    if (status == CLI_OK)
        status = command_verify_request(values, signer, &request.request);
    idem_signer_free(signer);
    cli_request_release(&request);
    return status;
}

static const char *const verify_options[] = {
    "secret-file", "form", "method",        "header", "data",  "data-file", "headers", "sequence",
    "window",      "now",  "show-verified", "spend",  "store", "json",      "help",    NULL};

const struct cli_command cli_verify = {
    .name = "verify",
    .summary = "why a signed request is refused",
    .synopsis = "--secret-file FILE -H 'NAME: VALUE'... [OPTIONS] URL [-d BODY]",
    .text =
        "Shows the result of each check, in the order in which they are made: parts, time,\n"
        "body, signature, nonce. Where the signature is wrong, it shows what should have been\n"
        "signed and tries the customary mistakes. It shows no secret, and not the signature\n"
        "that would have been right. Say form, window, headers and sequence as idem_sign does.\n"
        "The status is 0 if the request is good, and 65 if it is not.\n",
    .after = "  idem sign --key-id shop-1 --secret-file keys http://127.0.0.1:8080/orders |\n"
             "    idem verify --secret-file keys -H @- http://127.0.0.1:8080/orders\n",
    .options = verify_options,
    .run = command_verify_run,
};
