/* Passes over data whose samples are made when they are wanted: rows of arrays in memory, each of which goes through
 * the functions of ls_map. Of a batch a worker of a cluster wants the samples of its own lanes alone; when another
 * worker is lost, it wants more of the same batch. A sample has the bits it has in any other pass. */
#ifndef LS_DATA_ON_DEMAND_H
#define LS_DATA_ON_DEMAND_H

#include "data/dataset.h"

typedef struct ls_on_demand ls_on_demand;

/* Whether the batches of a dataset can be had in this way: an ls_batch over maps of single samples. */
ls_status ls_on_demand_can(ls_dataset *dataset, bool *out);

ls_status ls_on_demand_create(ls_dataset *dataset, uint64_t epoch, ls_on_demand **out);

/* The next batch: arrays in which nothing is made yet. *out is NULL at the end; otherwise valid until the next call. */
ls_status ls_on_demand_next(ls_on_demand *d, const ls_element **out);

/* Makes samples `first` to `end` - 1 of that batch, those that are not made yet. With threads (of ls_map, or the one of
 * ls_prefetch) they do it, and go on with the same samples of the batch that comes next. */
ls_status ls_on_demand_make(ls_on_demand *d, int64_t first, int64_t end);

/* Whether a sample of that batch is made. */
bool ls_on_demand_is_made(ls_on_demand *d, int64_t sample);

void ls_on_demand_destroy(ls_on_demand *d);

/* ---- Rows ---- */

/* As ls_rows_create, also of a dataset with an origin: the rows are those that maps are called with. */
ls_status ls_rows_of_origin(ls_dataset *dataset, uint64_t epoch, ls_rows **out);

#endif
