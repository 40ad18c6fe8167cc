package mockprovider

// Echo is the script of the scenario "echo", for hooks that change a part of it.
func Echo(r *Request) Script { return Script{Answer: echo(r, -1)} }
