def surroundings(*a): raise NotImplementedError
