// Package fit makes predictors and device profiles of measured operator groups,
// and measures their error on groups kept aside. The commands train, fit, device
// and reproduce call it; a daemon runs the command fit as a child, so that it does
// not link the graph library.
//
// [Train] returns a predictor file with a [Report], as its [Options] want.
// [RecipePaper] is the recipe of the Abacus authors, section 5 of their paper.
// [RecipeOurs] first infers what each operator costs from the latencies of the
// groups themselves ([Costs]): its time alone, and for how much of that it keeps
// the device busy, so that nothing overlaps it. A group then takes about as long as
// the longest of its spans or as all its work, whichever is more, and a network
// only corrects that. [Device] makes a profile with a network that cannot fall when
// operators are added.
//
// Few rows, and those that spread, would teach a network chance. So of up to some
// thousand rows cross-validation chooses the regularization: the priors on costs,
// and how much of the network's correction is worth keeping: all, a part, or none.
//
// For comparison there are linear regression and support vector regression, as
// in section 5.5. Test rows have no part in anything that is fitted or chosen:
// neither costs, scaling, weights, regularization, nor the number of epochs, which
// follows from the number of rows.
package fit
