// Package fit fits predictors and device profiles to measured operator groups, and measures
// their errors on held-out groups.
//
// [Train] returns a predictor file and a [Report], according to its [Options]. [Device] makes a
// device profile, whose network never predicts less time when operators are added. The commands
// train, fit, device and reproduce use this package. A daemon runs the command fit as a child
// process, at the lowest priority.
//
// There are two recipes. [RecipePaper] follows section 5 of the Abacus paper. [RecipeOurs]
// first infers the cost of each operator from the latencies of the groups ([Costs]): its
// isolated latency, and its work, which is the time for which it saturates the device so that
// nothing overlaps with it. A group then takes about as long as its longest span or as all its
// work, whichever is more. A network only corrects this estimate.
//
// A network would learn noise from few rows, especially if these have a large spread. Up to a
// few thousand rows, cross-validation therefore chooses the regularization: how strong the
// priors on costs are, and how much of the network's correction is kept, from none to all.
//
// Linear regression and support vector regression are available for comparison, as in section
// 5.5. Test rows take no part in anything that is fitted or chosen: costs, scaling, weights,
// regularization, or the number of epochs, which depends only on the number of rows.
package fit
