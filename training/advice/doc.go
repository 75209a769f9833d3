// Package advice says which services should share a device: what overlapping
// gains each pair, from measured groups, and a division of the services that
// gains most (Abacus, section 7.8). [Advise] makes an [Advice].
package advice
