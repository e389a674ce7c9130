"""What a step costs: times of operators as steps, layers, intervals, memory."""
