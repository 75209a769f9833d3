// Package fit fits predictors to measured operator groups, and says how far
// off they are on groups kept aside.
//
// [Train] does both, as its [Options] say, and returns a predictor file with a
// [Report]. Two recipes are known. [RecipePaper] is that of the Abacus authors,
// section 5 of their paper. [RecipeOurs] first infers what each operator costs
// from the latencies of the groups themselves: how long it takes alone, and how
// long it keeps the device busy, so that nothing overlaps it. A group then
// takes about as long as the longest of its spans or as all its work, whichever
// is more, and a network only corrects that.
//
// Few rows, and those that spread, would teach a network chance. So of up to
// some thousand rows it is tried, by folds of the rows to fit with, how firmly
// costs are best held to what is likely, and how much of the network's
// correction is worth keeping: all, a part, or none. The [Regularization] of the
// report says what came of it.
//
// For comparison there are linear regression and support vector regression, as
// in section 5.5. Test rows have no part in anything that is fitted or chosen:
// neither costs, scaling, weights, regularization, nor the number of epochs, which
// follows from the number of rows.
package fit
