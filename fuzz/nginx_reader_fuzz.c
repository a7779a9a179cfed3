/*
 * nginx's syntax: any text is read to its end, in steps that go forward, and
 * every word lies in the text.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/doctor/nginx_reader.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    char *text = malloc(size + 1), *before;
    struct nginx_reader reader = {text, text + size};
    struct nginx_directive directive;
    enum nginx_what what;

    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    do {
        before = reader.at;
        what = nginx_next(&reader, &directive);
        if (what != NGINX_END && reader.at <= before)
            abort();
        if ((what == NGINX_DIRECTIVE || what == NGINX_BLOCK) && directive.n == 0)
            abort();
        for (size_t i = 0; i < directive.n && what != NGINX_END; i++)
            if (directive.words[i] < text ||
                directive.words[i] + strlen(directive.words[i]) >= text + size)
                abort();
    } while (what != NGINX_END);
    free(text);
    return 0;
}
