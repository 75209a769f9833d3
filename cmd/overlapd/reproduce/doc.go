// Package reproduce puts the tables of the Abacus paper beside ours: it fits
// an emulated device and predictors to disjoint halves of what the paper's
// authors measured, has the production scheduler serve their deployments on it
// in virtual time, and writes what comes out as text, JSON and one page. [Run]
// gives a [Result], which depends on the data, the options and the build only;
// whatever differs from run to run is a [Timing]'s.
package reproduce
