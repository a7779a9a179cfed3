/*
 * The C library as the other end of a test: signs or verifies a request on stdin, which has the
 * form of HTTP except for its first line.
 *
 *     peer sign   SECRET_FILE FORM HEADERS KEY_ID   prints the headers to add
 *     peer verify SECRET_FILE FORM HEADERS          prints the proof's name, and the fault
 *
 *     METHOD SCHEME AUTHORITY TARGET
 *     Name: value
 *
 *     body
 *
 * Exits with 2 on an error.
 */
#include <idem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX (1 << 20)
#define FIELDS_MAX 64

struct input {
    struct idem_request request;
    struct idem_field fields[FIELDS_MAX];
    char text[INPUT_MAX + 1];
};

__attribute__((noreturn)) static void die(const char *why) {
    fprintf(stderr, "peer: %s\n", why);
    exit(2);
}

/* Returns the text up to the mark, and cuts the mark off. */
static char *cut(char **rest, const char *mark) {
    char *begin = *rest, *end = strstr(begin, mark);

    if (end == NULL)
        die("the request cannot be read");
    *end = '\0';
    *rest = end + strlen(mark);
    return begin;
}

static void input_read(struct input *ret) {
    size_t len = fread(ret->text, 1, INPUT_MAX, stdin);
    char *rest = ret->text;

    ret->text[len] = '\0';
    ret->request = (struct idem_request){.fields = ret->fields};
    ret->request.method = cut(&rest, " ");
    ret->request.scheme = cut(&rest, " ");
    ret->request.authority = cut(&rest, " ");
    ret->request.target = cut(&rest, "\n");
    while (*rest != '\n' && ret->request.fields_n < FIELDS_MAX) {
        struct idem_field *field = &ret->fields[ret->request.fields_n++];

        field->name = cut(&rest, ": ");
        field->value = cut(&rest, "\n");
    }
    (void)cut(&rest, "\n");
    ret->request.body = rest;
    ret->request.body_len = (size_t)(ret->text + len - rest);
}

static void sign(const struct idem_signer *signer, const struct idem_request *request,
                 const char *key_id) {
    struct idem_sign_with with = {.key_id = key_id};
    struct idem_signature signature;
    struct idem_error err;

    if (idem_sign_request(signer, &with, request, &signature, &err) != 0)
        die(err.text);
    for (size_t i = 0; i < signature.fields_n; i++)
        printf("%s: %s\n", signature.fields[i].name, signature.fields[i].value);
    idem_signature_release(&signature);
}

static void verify(const struct idem_signer *signer, const struct idem_request *request) {
    struct idem_verified verified;
    struct idem_error err;

    if (idem_verify_request(NULL, signer, request, &verified, &err) != 0)
        die(err.text);
    printf("%s %s\n", idem_proof_name(verified.proof), verified.detail);
    idem_verified_release(&verified);
}

int main(int argc, char **argv) {
    static struct input input;
    struct idem_sign_rules rules = {0};
    struct idem_signer *signer;
    struct idem_error err;

    if (argc < 5)
        die("arguments are missing");
    rules.secret_file = argv[2];
    rules.form = strcmp(argv[3], "classic") == 0 ? IDEM_SIGN_CLASSIC : IDEM_SIGN_RFC9421;
    rules.headers = argv[4];
    if (idem_signer_new(&rules, &signer, &err) != 0)
        die(err.text);
    input_read(&input);
    if (argc > 5)
        sign(signer, &input.request, argv[5]);
    else
        verify(signer, &input.request);
    idem_signer_free(signer);
    return 0;
}
