/*
 * The sweeper's times.
 */
#ifndef IDEM_STORE_SQL_SWEEP_H
#define IDEM_STORE_SQL_SWEEP_H

/* By what its pauses are divided. Variable only so that tests need not wait. */
extern unsigned sql_sweep_hurry;

#endif
