package cuda

// Types that only tests of this package name.
type (
	Fault       = fault
	Utilization = utilization
	Version     = version
)
