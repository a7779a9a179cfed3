/*
 * Prints a board with one of everything in Prometheus' format, for the test
 * that compares it with the documents: metric-text http|queue
 */
#include <stdlib.h>
#include <unistd.h>

#include "metric/metric_report.h"

int main(int argc, char **argv) {
    struct board *board = calloc(1, BOARD_SIZE);
    struct board_survey survey = {.at_ms = 1000, .uncertain = 1, .oldest_ms = 500};

    if (argc != 2 || board == NULL || !board_init(board))
        return 1;
    (void)board_route(board, argv[1], "shop.example /orders", "order:");
    (void)board_process(board, getpid());
    board_survey_set(board_store(board, "lmdb:/var/lib/idem/shop"), &survey);
    report_text(board, &(struct report_origin){.door = argv[1]}, stdout);
    free(board);
    return ferror(stdout) != 0;
}
