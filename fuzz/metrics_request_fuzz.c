/*
 * A request's head from any client: the parts lie within it, and a complete
 * head stays complete with more bytes after it.
 */
#include <stdlib.h>

#include "cli/consume/metrics_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void within(struct idem_http_text text, const char *begin, size_t len) {
    if (text.len != 0 && (text.at < begin || text.at + text.len > begin + len))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    struct metrics_request request;
    enum report_form form;

    for (size_t len = size > 64 ? size - 64 : 0; len <= size; len++) {
        int rc = metrics_request_read(text, len, &request);

        if (rc != 1)
            continue;
        within(request.method, text, len);
        within(request.path, text, len);
        within(request.query, text, len);
        within(request.host, text, len);
        (void)report_form(request.query, &request.accept, &form);
        if (metrics_request_read(text, size, &request) != 1)
            abort();
    }
    return 0;
}
