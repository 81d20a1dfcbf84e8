/* Datasets of text by name, for named.c. */
#ifndef LS_DATA_TEXT_SET_H
#define LS_DATA_TEXT_SET_H

#include "lockstep/text.h"

#define LS_TEXT_PREFIX "text:"

/* Makes the training and test part of "text:FILE[,context=N][,stride=N][,tokenizer=T][,vocab=N]
 * [,split=F][,test=FILE][,type=u16|u32]". A part that is not wanted, or not there, stays NULL. */
ls_status ls_text_by_name(const char *name, const bool wanted[2], ls_dataset *parts[2]);

#endif
