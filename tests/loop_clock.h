/*
 * The clock of idem_loop_now(), in this process: it drives deadlines and
 * back-off of a store. It runs by itself; a test can stop it and move it
 * forward, so that no timeout ends before the test wants it to.
 */
#ifndef IDEM_TEST_LOOP_CLOCK_H
#define IDEM_TEST_LOOP_CLOCK_H

#include <stdint.h>

void loop_clock_stop(void);
void loop_clock_go_on(void);
void loop_clock_forward(int64_t ms);

#endif
