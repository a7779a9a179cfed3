/*
 * nginx's syntax: any text is read to its end, in steps that go forward, and every word lies in it.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/doctor/nginx_reader.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    char *text = malloc(size + 1), *before;
    struct nginx_reader reader = {text, text + size};
    struct nginx_said said;
    enum nginx_what what;

    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    do {
        before = reader.at;
        what = nginx_next(&reader, &said);
        if (what != NGINX_END && reader.at <= before)
            abort();
        if ((what == NGINX_DIRECTIVE || what == NGINX_BLOCK) && said.n == 0)
            abort();
        for (size_t i = 0; i < said.n && what != NGINX_END; i++)
            if (said.words[i] < text || said.words[i] + strlen(said.words[i]) >= text + size)
                abort();
    } while (what != NGINX_END);
    free(text);
    return 0;
}
