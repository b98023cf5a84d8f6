"""What comes from elsewhere: answers and confidences that somebody brings, and a model that grades
answers.
"""
